"""ONNX file -> Graph. The only home of the onnx package."""
