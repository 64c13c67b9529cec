"""From one format to the other, and out to a MariaDB: whole stores, offline."""
