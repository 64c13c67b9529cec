<?php // php looks.php mysqli|pdo PORT USER PASSWORD TLS: what it sees, as JSON. See test_connectors.py.
[, $driver, $port, $user, $password, $tls] = $argv;
$insert = "INSERT INTO t (id, v) VALUES (?, ?)";
$seen = [];
if ($driver == "mysqli") {
    mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
    $db = mysqli_init();
    $flags = $tls ? MYSQLI_CLIENT_SSL | MYSQLI_CLIENT_SSL_DONT_VERIFY_SERVER_CERT : 0;
    $db->real_connect("127.0.0.1", $user, $password, "app", (int)$port, null, $flags);
    $seen["cipher"] = $db->query("SHOW STATUS LIKE 'Ssl_cipher'")->fetch_row()[1];
    $seen["databases"] = array_column($db->query("SHOW DATABASES")->fetch_all(), 0);
    $seen["tables"] = count($db->query("SHOW TABLES FROM information_schema")->fetch_all());
    $seen["values"] = array_map("strval", $db->execute_query("SELECT ?, ?", [7, "it's"])->fetch_row());
    try { $db->query("SELECT nonsense"); } catch (mysqli_sql_exception $e) { $seen["error"] = $e->getCode(); }
    $db->begin_transaction();
    $db->execute_query($insert, [7, "it's"]);
    $db->execute_query($insert, [8, null]);
    $db->commit();
    $db->multi_query("SELECT 1; SELECT 2");
    for ($n = 0; $result = $db->store_result(); $n++) { if (!$db->next_result()) break; }
    $db->change_user($user, $password, "app");
} else {
    $options = [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_EMULATE_PREPARES => false];
    if ($tls) { $options += [PDO::MYSQL_ATTR_SSL_CIPHER => "DEFAULT", PDO::MYSQL_ATTR_SSL_VERIFY_SERVER_CERT => false]; }
    $db = new PDO("mysql:host=127.0.0.1;port=$port;dbname=app", $user, $password, $options);
    $seen["cipher"] = $db->query("SHOW STATUS LIKE 'Ssl_cipher'")->fetchColumn(1);
    $seen["databases"] = $db->query("SHOW DATABASES")->fetchAll(PDO::FETCH_COLUMN);
    $seen["tables"] = count($db->query("SHOW TABLES FROM information_schema")->fetchAll());
    $s = $db->prepare("SELECT ?, ?"); $s->bindValue(1, 7, PDO::PARAM_INT); $s->bindValue(2, "it's"); $s->execute();
    $seen["values"] = array_map("strval", $s->fetch(PDO::FETCH_NUM));
    try { $db->query("SELECT nonsense"); } catch (PDOException $e) { $seen["error"] = $e->errorInfo[1]; }
    $db->beginTransaction();
    $db->prepare($insert)->execute([7, "it's"]);
    $db->prepare($insert)->execute([8, null]);
    $db->commit();
}
echo json_encode($seen);
