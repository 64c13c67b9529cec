#!/bin/sh
# First start: copy the empty data directory and do what these ask for (all optional):
#   REPLICATION_USER, REPLICATION_PASSWORD  the account to create on an upstream, or to log in with
#   REPLICATE_FROM=host[:port]              follow that server
set -eu
if [ ! -e /var/lib/mysql/ibdata1 ]; then
    cp -R /opt/template/. /var/lib/mysql/
    user=${REPLICATION_USER:-repl} password=${REPLICATION_PASSWORD:-}
    init=/run/mysqld/init.sql
    {
        echo "SET SESSION sql_log_bin = 0;"   # the binlog of a fresh server is empty
        echo "CREATE USER IF NOT EXISTS root@'%' IDENTIFIED BY '';"
        echo "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;"
        if [ -n "${REPLICATE_FROM:-}" ]; then
            host=${REPLICATE_FROM%:*} port=${REPLICATE_FROM##*:}
            [ "$port" != "$REPLICATE_FROM" ] || port=3306
            echo "CHANGE MASTER TO master_host='$host', master_port=$port, master_user='$user'," \
                 "master_password='$password', master_use_gtid=slave_pos, master_ssl=0," \
                 "master_connect_retry=1;"
            echo "START SLAVE;"
        elif [ -n "$password" ]; then
            echo "CREATE USER IF NOT EXISTS '$user'@'%' IDENTIFIED BY '$password';"
            echo "GRANT REPLICATION SLAVE ON *.* TO '$user'@'%';"
        fi
    } > "$init"
    set -- --init-file="$init" "$@"
fi
exec mariadbd --defaults-file=/etc/mysql/binlog-test.cnf "$@"
