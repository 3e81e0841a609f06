//! What a bundle gives each destination, and how it is enforced.

use ipnet::IpNet;

use super::json::Json;
use super::model::{Brake, Congestion, Enforce, Entry, Lift, Live, Otherwise, OwnSide, Trial, Way};
use super::values::{
    Field, MAX_DEFAULT_RESENT, MAX_ENTRIES, MAX_INITCWND, MAX_OBJECT_BYTES, MAX_RATE, Object,
    Order, RENDER, Reader, get,
};
use crate::error::Result;

const ENFORCE: Field<'static> = Field::Name("enforce");
const OPTED_OUT: &str = "enforce.opted_out";
/// What the program has room for; the controller knows it too.
const MAX_OPTED_OUT: usize = 64;

impl Reader<'_> {
    pub(super) fn content(&self, document: &Object<'_>) -> Result<(Enforce, Vec<Entry>)> {
        let enforce = self.enforce(get(document, "enforce").unwrap_or(&Json::Null))?;
        let mut order = Order::default();
        let mut entries = Vec::new();
        for (number, entry) in self.list(document, "entries")?.iter().enumerate() {
            entries.push(self.entry(Field::Item("entries", number), entry, &mut order)?);
        }
        Ok((enforce, entries))
    }

    fn enforce(&self, value: &Json<'_>) -> Result<Enforce> {
        let names = [
            "by",
            "otherwise",
            "live",
            "excluded",
            "opted_out",
            "lift_bytes",
            "lift_round_trips",
            "brake",
            "record_permille",
        ];
        let pairs = self.object(ENFORCE, value, &names)?;
        let default = Enforce::default();
        let ways = [("routes", Way::Routes), ("bpf", Way::Bpf)];
        let otherwise = [
            ("routes", Otherwise::Routes),
            ("default", Otherwise::Default),
        ];
        let live = [("leave", Live::Leave), ("restore", Live::Restore)];
        let number = |name: &str, least, most| {
            self.number(Field::In(&ENFORCE, name), get(pairs, name), least, most)
        };
        let found = Enforce {
            by: self
                .one_of(Field::In(&ENFORCE, "by"), get(pairs, "by"), &ways)?
                .unwrap_or(default.by),
            otherwise: self
                .one_of(
                    Field::In(&ENFORCE, "otherwise"),
                    get(pairs, "otherwise"),
                    &otherwise,
                )?
                .unwrap_or(default.otherwise),
            live: self
                .one_of(Field::In(&ENFORCE, "live"), get(pairs, "live"), &live)?
                .unwrap_or(default.live),
            excluded: self.excluded(get(pairs, "excluded"))?,
            opted_out: self.opted_out(get(pairs, "opted_out"))?,
            lift: Lift {
                bytes: number("lift_bytes", 1, MAX_OBJECT_BYTES)?.unwrap_or(default.lift.bytes),
                round_trips: number("lift_round_trips", 1, 1000)?,
            },
            brake: get(pairs, "brake")
                .map(|brake| self.brake(brake))
                .transpose()?,
            record_permille: number("record_permille", 0, 1000)?.unwrap_or(0),
        };
        if !found.opted_out.is_empty()
            && (found.by, found.otherwise) != (Way::Bpf, Otherwise::Default)
        {
            let problem =
                "is there by routes, which know destinations only: they cannot leave it alone";
            let fix = "set enforce.by: bpf and enforce.otherwise: default in policy.yaml";
            return Err(self.bad(OPTED_OUT, problem, fix));
        }
        Ok(found)
    }

    fn opted_out(&self, value: Option<&Json<'_>>) -> Result<Vec<OwnSide>> {
        let Some(value) = value else {
            return Ok(Vec::new());
        };
        let Json::List(items) = value else {
            return Err(self.bad(OPTED_OUT, "is not a list", RENDER));
        };
        if items.len() > MAX_OPTED_OUT {
            let problem = format!(
                "{} are more than the {MAX_OPTED_OUT} that an edge takes",
                items.len()
            );
            return Err(self.bad(OPTED_OUT, &problem, "name fewer in fleet.yaml"));
        }
        let mut found: Vec<OwnSide> = Vec::with_capacity(items.len());
        for (number, item) in items.iter().enumerate() {
            let field = Field::Item(OPTED_OUT, number);
            let pairs = self.object(field, item, &["port", "prefix"])?;
            let port = self.number(Field::In(&field, "port"), get(pairs, "port"), 1, 65_535)?;
            let own = OwnSide {
                port: port.and_then(|port| u16::try_from(port).ok()),
                prefix: get(pairs, "prefix")
                    .map(|prefix| self.prefix(field, prefix, "10.0.0.0/8"))
                    .transpose()?,
            };
            if own.port.is_none() && own.prefix.is_none() {
                return Err(self.bad(field, "has neither a port nor a prefix", RENDER));
            }
            if found.last().is_some_and(|last| *last >= own) {
                return Err(self.bad(field, "is out of order (port, prefix), or twice", RENDER));
            }
            found.push(own);
        }
        Ok(found)
    }

    fn excluded(&self, value: Option<&Json<'_>>) -> Result<Vec<IpNet>> {
        let Some(value) = value else {
            return Ok(Vec::new());
        };
        let Json::List(items) = value else {
            return Err(self.bad("enforce.excluded", "is not a list", RENDER));
        };
        if items.len() > MAX_ENTRIES {
            let problem = format!(
                "{} are more than the {MAX_ENTRIES} that an edge takes",
                items.len()
            );
            return Err(self.bad("enforce.excluded", &problem, RENDER));
        }
        let mut order = Order::default();
        let read = |(number, item)| {
            let field = Field::Item("enforce.excluded", number);
            let prefix = self.prefix(field, item, "10.0.0.0/8")?;
            self.in_order(field, prefix, &mut order)
        };
        items.iter().enumerate().map(read).collect()
    }

    fn brake(&self, value: &Json<'_>) -> Result<Brake> {
        let names = ["lost_permille", "connections", "half_life_s"];
        let found = self.exactly(Field::Name("enforce.brake"), value, names)?;
        let number = |place: usize, most: i64| {
            let field = Field::In(&Field::Name("enforce.brake"), names[place]);
            self.number(field, Some(found[place]), 1, most)
                .map(Option::unwrap_or_default)
        };
        Ok(Brake {
            lost_permille: number(0, 1000)?,
            connections: number(1, 1_000_000)?,
            half_life_s: number(2, 86_400)?,
        })
    }

    fn entry(&self, field: Field<'_>, value: &Json<'_>, order: &mut Order) -> Result<Entry> {
        let names = [
            "prefix",
            "initcwnd",
            "start_rate",
            "connection_rate",
            "congestion",
            "receive_window",
            "trial",
            "default_resent",
        ];
        let pairs = self.object(field, value, &names)?;
        let Some(prefix) = get(pairs, "prefix") else {
            return Err(self.bad(Field::In(&field, "prefix"), "is missing", RENDER));
        };
        let prefix = self.destination(field, prefix, order)?;
        if pairs.len() == 1 {
            return Err(self.bad(field, &format!("{prefix} has no value"), RENDER));
        }
        let window =
            |name: &str| self.number(Field::In(&field, name), get(pairs, name), 1, MAX_INITCWND);
        let (start_rate, connection_rate) = self.rates(field, pairs)?;
        Ok(Entry {
            prefix,
            initcwnd: window("initcwnd")?,
            start_rate,
            connection_rate,
            congestion: get(pairs, "congestion")
                .map(|value| self.congestion(field, value))
                .transpose()?,
            receive_window: window("receive_window")?,
            trial: get(pairs, "trial")
                .map(|value| self.trial(field, value))
                .transpose()?,
            default_resent: self.number(
                Field::In(&field, "default_resent"),
                get(pairs, "default_resent"),
                1,
                MAX_DEFAULT_RESENT,
            )?,
        })
    }

    /// The rate that all share, and what one of them gets of it at most.
    fn rates(&self, field: Field<'_>, pairs: &Object<'_>) -> Result<(Option<u64>, Option<u64>)> {
        let rate = |name: &'static str| {
            get(pairs, name)
                .map(|value| self.whole(Field::In(&field, name), value, 1000, MAX_RATE))
                .transpose()
                .map(|rate| rate.map(i64::unsigned_abs))
        };
        let rates = (rate("start_rate")?, rate("connection_rate")?);
        if let (None, Some(_)) = rates {
            let problem = "is there without start_rate, of which it is a part";
            return Err(self.bad(Field::In(&field, "connection_rate"), problem, RENDER));
        }
        Ok(rates)
    }

    fn congestion(&self, entry: Field<'_>, value: &Json<'_>) -> Result<Congestion> {
        let field = Field::In(&entry, "congestion");
        let pairs = self.object(field, value, &["algorithm", "from_bytes", "always"])?;
        let required = |name: &str| {
            get(pairs, name).ok_or_else(|| self.bad(Field::In(&field, name), "is missing", RENDER))
        };
        let from_bytes = self.whole(
            Field::In(&field, "from_bytes"),
            required("from_bytes")?,
            0,
            MAX_OBJECT_BYTES,
        )?;
        let always = match get(pairs, "always") {
            None => false,
            Some(Json::Bool(value)) => *value,
            Some(other) => {
                let problem = format!("{} is neither true nor false", other.shown());
                return Err(self.bad(Field::In(&field, "always"), &problem, RENDER));
            }
        };
        let algorithm = self.algorithm(field, required("algorithm")?)?;
        Ok(Congestion {
            algorithm,
            from_bytes: from_bytes.unsigned_abs(),
            always,
        })
    }

    fn trial(&self, entry: Field<'_>, value: &Json<'_>) -> Result<Trial> {
        let field = Field::In(&entry, "trial");
        let pairs = self.object(
            field,
            value,
            &["permille", "initcwnd", "start_rate", "connection_rate"],
        )?;
        let number =
            |name: &str, most| self.number(Field::In(&field, name), get(pairs, name), 1, most);
        let Some(permille) = number("permille", 1000)? else {
            return Err(self.bad(Field::In(&field, "permille"), "is missing", RENDER));
        };
        let (start_rate, connection_rate) = self.rates(field, pairs)?;
        Ok(Trial {
            permille,
            initcwnd: number("initcwnd", MAX_INITCWND)?,
            start_rate,
            connection_rate,
        })
    }
}
