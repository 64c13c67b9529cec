"""Events as text for people and tools: SQL that `mariadb` takes, and objects for JSON. Pure, like all of protocol/."""
