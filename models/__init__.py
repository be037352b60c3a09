"""Test and demo models as .onnx files, made from committed graph skeletons and seeded weights."""
