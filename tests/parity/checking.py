"""What the checks of parity share: a fault with its words, and running the program."""
import subprocess


class Failed(Exception):
    pass


def require(condition, message):
    if not condition:
        raise Failed(message)


def run_program(command):
    """What it says on standard output; another exit than 0 is a fault with what it says on standard error."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    require(done.returncode == 0, f"exit {done.returncode}: {' '.join(command)}\n{done.stderr.strip()}")
    return done.stdout
