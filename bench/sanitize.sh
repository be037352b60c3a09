#!/usr/bin/env bash
# compute-sanitizer over the zoo's kernels: memcheck of the five full models; memcheck, racecheck and synccheck of their twins.
#   bench/sanitize.sh [--out FILE.json] [--seconds 460] [--full-tools memcheck,synccheck] [--twin-tools …] [--precisions fp16,fp32]
# Needs a GPU and compute-sanitizer on the PATH (or named by COMPUTE_SANITIZER). Exit code 5: an error was found.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" -m bench.sanitize "$@"
