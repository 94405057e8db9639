"""`python -m whitelie` is the command `whitelie`."""

from whitelie.cli import app

if __name__ == "__main__":
    app(prog_name="whitelie")
