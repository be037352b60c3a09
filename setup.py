"""What pyproject.toml cannot say: `cli/` is installed as `taskc_cli`, and a wheel carries the built C runtime."""

import platform
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from taskc.artifact.runtime_build import build_runtime, find_compiler, source_key  # noqa: E402


class BuildWithRuntime(build_py):
    """Builds the C runtime into the wheel where there is a compiler; without one it is built at first use."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and find_compiler() is not None:
            name = f"taskc-runtime-{platform.machine()}-{source_key()}.so"  # as runtime_build looks for it
            build_runtime(Path(self.build_lib, "taskc", "artifact", "runtime", "prebuilt", name))


class WithRuntime(Distribution):
    """The wheel fits one kind of machine when the runtime is in it."""

    def has_ext_modules(self) -> bool:
        return find_compiler() is not None


setup(
    distclass=WithRuntime,
    cmdclass={"build_py": BuildWithRuntime},
    package_dir={"taskc": "taskc", "taskc_cli": "cli"},
    packages=[*find_packages(include=["taskc", "taskc.*"]), "taskc_cli"],
)
