"""``python -m geoveil`` is the program ``geoveil``."""

from geoveil.cli import main

if __name__ == "__main__":
    main()
