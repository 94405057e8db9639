"""The process: the server, or several workers that a supervisor restarts."""
