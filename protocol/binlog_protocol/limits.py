"""Every limit of the protocol layer, with its unit and the reason for its value.

A peer that goes beyond one of these gets an error; no buffer grows past them.
"""

from __future__ import annotations

from typing import Final

# Bytes of payload in one wire packet; a longer payload continues in the next packet. The
# length field of the packet header has three bytes, and its highest value means "more follows".
PACKET_PAYLOAD_MAX: Final = 0xFFFFFF

# Bytes of the one packet a client may send before it has logged in. A real login has about
# 200 bytes; connection attributes may legally reach some kilobytes. An unknown peer gets no more.
LOGIN_PACKET_BYTES_MAX: Final = 16 * 1024

# Connection attributes that are read of a login; the rest of them is left out, as MariaDB leaves out what is beyond
# performance_schema_session_connect_attrs_size.
CONNECT_ATTRIBUTES_MAX: Final = 64

# Bytes of one command after login: MariaDB's default max_allowed_packet.
COMMAND_PACKET_BYTES_MAX: Final = 16 * 1024 * 1024

# Bytes of one replication event: slave_max_allowed_packet of a MariaDB replica.
EVENT_BYTES_MAX: Final = 1024 * 1024 * 1024

# Bytes of one packet from an upstream: the status byte and an event.
UPSTREAM_PACKET_BYTES_MAX: Final = EVENT_BYTES_MAX + 1

# Bytes of the events of one group kept in memory by the assembler unless told otherwise.
GROUP_BYTES_MAX: Final = 1024 * 1024 * 1024

# Bytes of one group taken from an upstream unless told otherwise. It does not lie in memory: a limit against nonsense.
EVENT_GROUP_BYTES_MAX: Final = 64 * GROUP_BYTES_MAX

# Bytes of a GTID event. MariaDB's have less than 256; newer servers may append fields. It stays in memory while the
# rest of its group goes to the disk, and is one record of the log there.
GTID_EVENT_BYTES_MAX: Final = 64 * 1024

# Pairs of a domain and a server in a binlog state that comes from upstreams. Each is kept in memory, in each binlog
# file, and in what replicas and clients are told; a replica sends its position as text.
STATE_ENTRIES_MAX: Final = 32 * 1024

# Bytes of a GTID_LIST event of an upstream: an entry for each domain and server that has ever logged.
GTID_LIST_EVENT_BYTES_MAX: Final = 16 * STATE_ENTRIES_MAX + 64

# Bytes of error text in an ERR packet: MariaDB's MYSQL_ERRMSG_SIZE; what is longer is cut.
ERROR_TEXT_BYTES_MAX: Final = 512

# Bytes of a text with GTIDs that a peer sends, where it is parsed on the event loop: 780 domains of 21 characters.
# Less than a millisecond of processor time.
GTID_LIST_BYTES_MAX: Final = 16 * 1024

# Bytes of a database's name in COM_INIT_DB: MariaDB's NAME_LEN, 64 characters of four bytes. What is longer is refused
# by who knows the character set, so one byte more is kept.
DATABASE_BYTES_MAX: Final = 256

# Bytes of COM_FIELD_LIST that are read: the names of a database and of a table, and a pattern. Longer ones are cut.
FIELD_LIST_BYTES_MAX: Final = 4 * DATABASE_BYTES_MAX

# Parameters of a prepared statement: their number has two bytes.
PARAMETERS_MAX: Final = 0xFFFF

# Bytes of a file's name in a dump command: MariaDB's FN_REFLEN. What is longer is cut: no file is called so.
FILE_NAME_BYTES_MAX: Final = 512

# Bytes of report_host, report_user and report_password of COM_REGISTER_SLAVE, as MariaDB keeps
# them (HOSTNAME_LENGTH, USERNAME_LENGTH, MAX_PASSWORD_LENGTH).
REPORT_HOST_BYTES_MAX: Final = 60
REPORT_USER_BYTES_MAX: Final = 80
REPORT_PASSWORD_BYTES_MAX: Final = 32

# Number of columns in a result set that the client side accepts: a MariaDB table has at most 4096.
RESULT_COLUMNS_MAX: Final = 4096

# Bytes of a GTID in a list: 10, 10 and 20 digits, and what is between them.
GTID_TEXT_BYTES_MAX: Final = 43

# Bytes of all rows of one result set that the client side collects. The statements that a replica
# sends to its upstream are answered by one row, the longest of which is a binlog state.
RESULT_BYTES_MAX: Final = GTID_TEXT_BYTES_MAX * STATE_ENTRIES_MAX + 64 * 1024

# What each packet of a result set counts for beside its bytes: it takes microseconds even if it has none.
RESULT_PACKET_BYTES: Final = 256
