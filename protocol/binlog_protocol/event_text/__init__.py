"""Events as text for people and tools: SQL that `mariadb` takes, and objects for JSON. Pure, like all of protocol/."""

from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.column_rules import ColumnRules
from binlog_protocol.event_text.debezium_form import DebeziumForm, DebeziumOptions, Message
from binlog_protocol.event_text.debezium_values import DecimalHandling, Invalid
from binlog_protocol.event_text.json_form import JsonForm
from binlog_protocol.event_text.sql_form import SaveFile, SqlForm

__all__ = [
    "Choice",
    "ColumnRules",
    "DebeziumForm",
    "DebeziumOptions",
    "DecimalHandling",
    "Invalid",
    "JsonForm",
    "Message",
    "SaveFile",
    "SqlForm",
]
