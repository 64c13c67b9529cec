"""SQL over the replication port: what is asked (`statements`, `parser`) and what is answered (`answers`)."""
