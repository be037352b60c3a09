"""Errors a user sees: each names the node, tensor or option, the cause and the next step, and carries its exit code."""

from __future__ import annotations


class TaskcError(Exception):
    """Base of all expected failures; `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(TaskcError):
    """A wrong option, feed or argument."""

    exit_code = 2


class BadModel(TaskcError):
    """A model file that is missing, damaged, inconsistent or hostile."""

    exit_code = 3


class Unsupported(TaskcError):
    """A valid model that uses something taskc does not handle; the message lists every such node."""

    exit_code = 4


class AccuracyError(TaskcError):
    """A result that differs from the reference by more than the bar."""

    exit_code = 5


class Untuned(TaskcError):
    """A locked compile met kernels that the cache does not have, or has for another toolchain."""

    exit_code = 6


class ToolchainError(TaskcError):
    """NVRTC, the C++ compiler or a package they need failed or is missing."""

    exit_code = 7


class NoDevice(TaskcError):
    """No GPU, no driver, or no embedded code that fits the GPU."""

    exit_code = 8
