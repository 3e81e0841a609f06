//! The INSERT that makes rows of a table from messages: the server's columns decide, the contract defines what is sent.

use serde_json::Value;

use crate::sample::fields;

const PROTO: &str = include_str!("../../../../proto/springtide/v1/tcp_sample.proto");

/// A column of the table, as system.columns describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: String,
}

impl Column {
    /// From a line of the answer to [`columns_query`].
    pub(super) fn parse(line: &str) -> Result<Self, serde_json::Error> {
        let line: Value = serde_json::from_str(line)?;
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            name: text("name"),
            kind: text("type"),
        })
    }
}

/// Asks for the table's columns; those that the server sets itself, PoPs from its dictionary for one, are left out.
pub(super) fn columns_query(table: &str) -> String {
    format!(
        "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = '{table}' \
         AND default_kind = '' ORDER BY position FORMAT JSONEachRow"
    )
}

/// The statement; None when no column of the table is a field of the contract.
pub(super) fn insert(table: &str, columns: &[Column]) -> Option<String> {
    let known = |name: &str| {
        fields::PARTS
            .iter()
            .copied()
            .flatten()
            .any(|field| field.name == name)
    };
    let sent: Vec<_> = columns
        .iter()
        .filter(|column| known(&column.name))
        .collect();
    if sent.is_empty() {
        return None;
    }
    // Enums are sent as their numbers: the contract's names carry prefixes that the table's do not.
    let is_enum = |column: &Column| column.kind.starts_with("Enum");
    let structure: Vec<_> = sent
        .iter()
        .map(|column| {
            format!(
                "{} {}",
                column.name,
                if is_enum(column) {
                    "Int8"
                } else {
                    &column.kind
                }
            )
        })
        .collect();
    let names: Vec<_> = sent.iter().map(|column| column.name.clone()).collect();
    let values: Vec<_> = sent
        .iter()
        .map(|column| match is_enum(column) {
            true => format!("CAST({} AS {})", column.name, column.kind),
            false => column.name.clone(),
        })
        .collect();
    Some(format!(
        "INSERT INTO {table} ({}) SELECT {} FROM input('{}') FORMAT ProtobufList",
        names.join(", "),
        values.join(", "),
        structure
            .join(", ")
            .replace('\\', "\\\\")
            .replace('\'', "\\'"),
    ))
}

/// The contract without comments: it travels in the address of each request.
pub(super) fn schema() -> String {
    let lines = PROTO
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let words: Vec<_> = lines.flat_map(str::split_whitespace).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: &str) -> Column {
        Column {
            name: name.to_owned(),
            kind: kind.to_owned(),
        }
    }

    #[test]
    fn the_server_decides_which_columns_there_are() {
        let columns = [
            column("host", "LowCardinality(String)"),
            column("kind", "Enum8('POLL' = 1)"),
            column("dst_ip", "IPv6"),
            column("asn", "UInt32"),
        ];
        assert_eq!(
            insert("tcp_samples", &columns).unwrap(),
            "INSERT INTO tcp_samples (host, kind, dst_ip) \
             SELECT host, CAST(kind AS Enum8('POLL' = 1)), dst_ip \
             FROM input('host LowCardinality(String), kind Int8, dst_ip IPv6') FORMAT ProtobufList"
        );
        assert_eq!(insert("tcp_samples", &columns[3..]), None);
    }

    #[test]
    fn the_schema_travels_without_comments_and_stays_a_schema() {
        let schema = schema();
        assert!(schema.len() < 8 << 10, "{} bytes", schema.len());
        assert!(schema.starts_with("syntax = \"proto3\"; package springtide.v1;"));
        assert!(!schema.contains("//"));
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.proto"), schema).unwrap();
        protox::compile(["a.proto"], [dir.path()]).unwrap();
    }
}
