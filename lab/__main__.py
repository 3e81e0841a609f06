"""`python -m lab`."""

from lab.cli import main
from lab.demo.command import demo

main.add_command(demo)
main()
