"""`memfluence` and `python -m memfluence`: the command line.

Signals wait while it is imported; it then ends at them in one sentence.
"""

import signal


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    from memfluence.cli import main as command

    command()


if __name__ == "__main__":
    main()
