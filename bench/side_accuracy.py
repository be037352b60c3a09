"""Worker: the accuracy of one case."""

from bench.accuracy import measure
from bench.worker import serve

if __name__ == "__main__":
    serve(measure)
