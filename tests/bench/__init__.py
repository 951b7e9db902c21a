"""The figures, measured: `python -m tests.bench` prints one JSON object."""
