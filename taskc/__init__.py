"""taskc: compiles an ONNX model into one self-contained CUDA shared library and a small Python loader."""

__version__ = "0.1.0"
