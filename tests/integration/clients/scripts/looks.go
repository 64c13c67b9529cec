// go run looks.go PORT USER PASSWORD TLS: what it sees, as JSON. See test_connectors.py.
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/go-sql-driver/mysql"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", "127.0.0.1:"+os.Args[1], "app"
	config.User, config.Passwd = os.Args[2], os.Args[3]
	if os.Args[4] != "" {
		config.TLSConfig = "skip-verify"
	}
	db, err := sql.Open("mysql", config.FormatDSN())
	must(err)
	must(db.Ping())
	seen := map[string]any{}
	var name, cipher, number, text string
	must(db.QueryRow("SHOW STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher))
	rows, err := db.Query("SHOW DATABASES")
	must(err)
	databases := []string{}
	for rows.Next() {
		must(rows.Scan(&name))
		databases = append(databases, name)
	}
	var tables int
	must(db.QueryRow("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", "information_schema").Scan(&tables))
	must(db.QueryRow("SELECT ?, ?", 7, "it's").Scan(&number, &text))
	_, err = db.Exec("SELECT nonsense")
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		seen["error"] = refused.Number
	}
	change, err := db.Begin()
	must(err)
	for id, v := range map[int]any{7: "it's", 8: nil} {
		_, err = change.Exec("INSERT INTO t (id, v) VALUES (?, ?)", id, v)
		must(err)
	}
	must(change.Commit())
	seen["cipher"], seen["databases"], seen["tables"], seen["values"] = cipher, databases, tables, []string{number, text}
	answer, _ := json.Marshal(seen)
	fmt.Print(string(answer))
}
