"""`python -m binlog_server`."""

import sys

from binlog_server.cli import main

sys.exit(main())
