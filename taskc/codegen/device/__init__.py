"""The device headers and the host runtime, as files: where they lie and what is in them."""
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

DEVICE_DIR = Path(__file__).parent
INCLUDE = '#include "taskc_device.cuh"'


def device_headers() -> Mapping[str, str]:
    """Name -> text of every header a kernel text may pull in on the GPU."""
    return MappingProxyType({path.name: path.read_text() for path in sorted(DEVICE_DIR.glob('*.cuh'))})


def host_sources() -> Mapping[str, str]:
    """Name -> text of everything a library of `host` kernels is made of, beside the kernels."""
    paths = sorted(path for path in DEVICE_DIR.iterdir() if path.suffix in {'.cuh', '.h', '.hpp', '.cpp'})
    return MappingProxyType({path.name: path.read_text() for path in paths})
