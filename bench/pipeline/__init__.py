"""The way from Kafka into ClickHouse, measured on traffic that is replayed from real captures."""
