"""``python -m kcache_grpc`` is the ``kcache`` command."""

import sys

from kcache_grpc.cli import main

if __name__ == "__main__":
    sys.exit(main())
