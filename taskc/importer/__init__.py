"""`.onnx` -> Graph. The only home of `onnx`."""

from taskc.importer.importer import import_model

__all__ = ["import_model"]
