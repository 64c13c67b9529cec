# perl looks.pl MariaDB|mysql PORT USER PASSWORD TLS: what it sees, as JSON. See test_connectors.py.
use strict; use warnings; use DBI; use JSON::PP;
my ($driver, $port, $user, $password, $tls) = @ARGV;
my $prefix = lc $driver;
my $options = $tls ? ";${prefix}_ssl=1;${prefix}_ssl_optional=1" : "";
my $db = DBI->connect("DBI:$driver:host=127.0.0.1;port=$port;database=app$options", $user, $password,
    { RaiseError => 1, PrintError => 0, AutoCommit => 1, "${prefix}_server_prepare" => 1 });
my %seen = (cipher => ($db->selectrow_array("SHOW STATUS LIKE 'Ssl_cipher'"))[1] // "");
$seen{databases} = [map { $_->[0] } @{ $db->selectall_arrayref("SHOW DATABASES") }];
$seen{tables} = scalar @{ $db->table_info(undef, "information_schema", "%", undef)->fetchall_arrayref };
$seen{values} = [map { "$_" } $db->selectrow_array("SELECT ?, ?", undef, 7, "it's")];
eval { $db->do("SELECT nonsense") };
$seen{error} = $db->err;
$db->begin_work;
$db->do("INSERT INTO t (id, v) VALUES (?, ?)", undef, 7, "it's");
$db->do("INSERT INTO t (id, v) VALUES (?, ?)", undef, 8, undef);
$db->commit;
$db->ping or die;
print encode_json(\%seen);
