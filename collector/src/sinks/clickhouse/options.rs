//! Options of the sink.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ureq::Agent;
use ureq::http;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::{BATCH, ClickHouse, statement};
use crate::options::key;
use crate::options::units::parse_duration;
use crate::sinks::start::{Opened, Opening, SinkOptions, StartError};

/// Name of the environment variable with the password.
const PASSWORD: &str = "SPRINGTIDE_CLICKHOUSE_PASSWORD";

/// Options of the sink.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "ClickHouse")]
pub(crate) struct ClickHouseOptions {
    /// Insert into ClickHouse: its HTTP(S) address. The password is taken from the environment's
    /// SPRINGTIDE_CLICKHOUSE_PASSWORD or from a file
    #[arg(long, value_name = "URL", add = key("clickhouse.url"))]
    pub clickhouse: Option<String>,
    /// Database
    #[arg(long, value_name = "NAME", default_value = "springtide", value_parser = parse_name,
          add = key("clickhouse.database"))]
    pub clickhouse_database: String,
    /// Table, as `springtide migrate` makes it
    #[arg(long, value_name = "NAME", default_value = "tcp_samples", value_parser = parse_name,
          add = key("clickhouse.table"))]
    pub clickhouse_table: String,
    /// User
    #[arg(long, value_name = "NAME", default_value = "default", add = key("clickhouse.user"))]
    pub clickhouse_user: String,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE", add = key("clickhouse.password_file"))]
    pub clickhouse_password_file: Option<PathBuf>,
    /// File of certificates (PEM) to trust instead of the public ones
    #[arg(long, value_name = "FILE", add = key("clickhouse.ca"))]
    pub clickhouse_ca: Option<PathBuf>,
    /// Insert at least this often while there are samples (1ms to 24h)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration,
          add = key("clickhouse.interval"))]
    pub clickhouse_interval: Duration,
}

fn parse_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) || !text.bytes().all(fits)
    {
        return Err("a name has letters, digits and '_'".to_owned());
    }
    Ok(text.to_owned())
}

impl ClickHouseOptions {
    /// The sink for these options. In an error: what is wrong with them.
    fn sink(&self, host: &str) -> Result<ClickHouse, String> {
        Ok(ClickHouse {
            url: parse_url(self.clickhouse.as_deref().unwrap_or_default())?,
            agent: agent(self)?,
            database: self.clickhouse_database.clone(),
            table: self.clickhouse_table.clone(),
            user: self.clickhouse_user.clone(),
            password: password(self)?,
            schema: statement::schema(),
            host: host.to_owned(),
            interval: self.clickhouse_interval,
            statement: None,
            batch_limit: BATCH,
            pending: None,
        })
    }
}

impl SinkOptions for ClickHouseOptions {
    fn flag(&self) -> &'static str {
        "--clickhouse"
    }

    fn wanted(&self) -> bool {
        self.clickhouse.is_some()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        self.sink("").map(drop)
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Opened, StartError> {
        let sink = self.sink(opening.host).map_err(StartError::Options)?;
        Ok(Opened::Remote("clickhouse", Box::new(sink)))
    }
}

fn parse_url(text: &str) -> Result<String, String> {
    let wrong = |what: &str| {
        Err(format!(
            "--clickhouse: {what}: use http://HOST:8123 or https://HOST:8443"
        ))
    };
    let Ok(uri) = text.parse::<http::Uri>() else {
        return wrong("it is not a valid address");
    };
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            wrong("a name or a password in the address can be seen by others")
        }
        (Some("http" | "https"), Some(_)) if uri.query().is_none() => Ok(text.to_owned()),
        _ => wrong("it is not the address of a ClickHouse server"),
    }
}

fn password(options: &ClickHouseOptions) -> Result<String, String> {
    let Some(path) = &options.clickhouse_password_file else {
        return Ok(std::env::var(PASSWORD).unwrap_or_default());
    };
    let text = fs::read_to_string(path)
        .map_err(|error| format!("{}: cannot read the password: {error}", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn agent(options: &ClickHouseOptions) -> Result<Agent, String> {
    let mut tls = TlsConfig::builder();
    if let Some(path) = &options.clickhouse_ca {
        let named = path.display();
        let pem = fs::read(path).map_err(|error| format!("{named}: cannot read it: {error}"))?;
        let certificates: Vec<_> = parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if certificates.is_empty() {
            return Err(format!(
                "{named}: there is no certificate in it: give a PEM file"
            ));
        }
        tls = tls.root_certs(RootCerts::from(certificates));
    }
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(Duration::from_secs(10)))
        .timeout_send_body(Some(Duration::from_secs(60)))
        .timeout_recv_response(Some(Duration::from_secs(300)))
        .user_agent(concat!("springtide-collector/", env!("CARGO_PKG_VERSION")))
        .build();
    Ok(config.new_agent())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_no_secret() {
        assert!(parse_url("http://localhost:8123").is_ok());
        assert!(parse_url("https://ch.example/proxied/").is_ok());
        for wrong in [
            "localhost:8123",
            "tcp://h:9000",
            "http://u:p@h:8123",
            "http://h/?user=u",
            "",
            "http://",
        ] {
            assert!(
                parse_url(wrong).unwrap_err().starts_with("--clickhouse: "),
                "{wrong}"
            );
        }
    }
}
