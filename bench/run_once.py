"""Compiles a zoo model, or runs a compiled one a few times: what a tool such as compute-sanitizer is put around.

    python -m bench.run_once compile resnet50 --half --folder DIR [--target sm_90a]
    python -m bench.run_once run resnet50 --half --folder DIR [--runs 2]

The run imports NumPy and the loader, no framework, so that the tool sees the library's work and nothing else; it compares
the outputs with onnxruntime's, which `compile` left in the folder. Exit code 5: they differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # run as a file: the repository's root is not on the path yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.cases import TOLERANCE, Case, judge, relative_error
from taskc.artifact import loader


def compile_case(case: Case, target: str) -> None:
    """Writes the case's files and library."""
    from bench.cases import make_files
    from bench.side_prepare import run_reference  # onnxruntime and the compiler: not in a run under a tool
    from taskc.compile import compile_model

    make_files(case, run_reference)
    compile_model(str(case.path("model.onnx")), case.path("model.so"), target)


def run_case(case: Case, device: str, runs: int, once: bool) -> bool:
    """Runs the library on both inputs, or `once` on the first; whether the outputs are right."""
    model = loader.load(case.path("model.so"), device=device)
    if once:
        error = relative_error(model.run(case.arrays("feed.npz")), case.arrays("want.npz"))
        print(f"{case.label} on {model.device_name}: relative error {error}", flush=True)
        return error <= TOLERANCE[case.precision]
    for _ in range(runs - 1):
        model.run(case.arrays("feed.npz"))
    got = model.run(case.arrays("feed.npz"))
    verdict = judge(case, got, model.run(case.arrays("other.npz")))
    print(f"{case.label} on {model.device_name}: {verdict}", flush=True)
    return verdict["right"] and verdict["live"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile a model once, or run it a few times.")
    parser.add_argument("what", choices=("compile", "run"))
    parser.add_argument("model")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--once", action="store_true", help="one run, for tools that are slow")
    args = parser.parse_args()
    case = Case(args.model, "fp16" if args.half else "fp32", args.folder)
    if args.what == "compile":
        compile_case(case, args.target)
        return 0
    return 0 if run_case(case, "host" if args.target == "host" else "cuda:0", max(1, args.runs), args.once) else 5


if __name__ == "__main__":
    sys.exit(main())
