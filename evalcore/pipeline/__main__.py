"""The entry of a child process: a SIGINT while it imports what it needs ends it without a word."""

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)

from evalcore.pipeline.process import main  # noqa: E402

main()
