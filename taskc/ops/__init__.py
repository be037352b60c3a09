"""Operators: attributes, ONNX readers, shape and dtype rules, NumPy references, tasks and examples."""
