"""Accuracy of whole models."""
