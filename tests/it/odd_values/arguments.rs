//! Odd values of each type.

pub struct Argument {
    /// The type, as a cast names it.
    pub r#type: String,
    /// The name of the type, or of the base type of a domain; a leading `_` marks an array.
    pub base: String,
    /// The labels of an enum, as SQL literals.
    pub labels: Vec<String>,
}

/// Bytes that are not UTF-8, for databases in which any are text: truncated, overlong, a surrogate, never valid.
const NO_TEXT: [&str; 4] = [
    r"E'a\xc3'",
    r"E'\xc0\x80b'",
    r"E'\xed\xa0\x80'",
    r"E'\xff\xfe@\xff.example'",
];

/// The bytes that a text may contain in a database's encoding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Octets {
    Utf8,
    /// Any but zero.
    Any,
}

impl Argument {
    /// A value that a function accepts, for the arguments that are not being tested.
    pub fn plain(&self) -> String {
        let value = match self.base.as_str() {
            _ if !self.labels.is_empty() => &self.labels[0],
            "int2" | "int4" | "int8" | "oid" | "float8" | "numeric" => "'1'",
            "bool" => "'t'",
            "jsonb" | "json" => "'{}'",
            "bytea" => "decode(repeat('07', 32), 'hex')",
            "timestamptz" => "now()",
            "interval" => "'1 min'",
            "text" | "varchar" | "name" => "'a@example.com'",
            "_text" | "_varchar" => "'{a@example.com}'",
            "_int8" | "_int4" => "'{1}'",
            "regclass" => "'accounts'",
            "regprocedure" => "'pg_backend_pid()'",
            "tid" => "'(0,1)'",
            _ => "NULL",
        };
        self.cast(value)
    }

    pub fn cast(&self, value: &str) -> String {
        format!("({value})::{}", self.r#type)
    }

    /// The odd values.
    pub fn odd(&self, octets: Octets) -> Vec<String> {
        let mut values: Vec<&str> = vec!["NULL"];
        match self.base.as_str() {
            "int2" => values.extend(["'-32768'", "-1", "0", "32767"]),
            "int4" => values.extend(["'-2147483648'", "-1", "0", "2147483647"]),
            "int8" => values.extend([
                "'-9223372036854775808'",
                "-1",
                "0",
                "4294967296",
                "9223372036854775807",
            ]),
            "oid" | "regclass" | "regtype" | "regproc" | "regrole" => {
                values.extend(["0", "1", "'4294967295'"]);
            }
            "xid" | "cid" => values.extend(["'0'", "'4294967295'"]),
            "float8" | "numeric" => {
                values.extend(["'NaN'", "'Infinity'", "'-Infinity'", "-1", "0", "1e308"]);
            }
            "bool" => values.extend(["'t'", "'f'"]),
            "text" | "varchar" | "bpchar" | "name" | "json" => {
                values.extend([
                    "''",
                    "' '",
                    r"E'\x01\t\r\n'",
                    r"E'\\'",
                    "''''",
                    "'%s %n {{ a }} {% for'",
                    "'{}'",
                    "'@'",
                    "'1'",
                    r"U&'u\0308\202E\+01F600\FFFF@\212A.example'",
                    "repeat('(', 100000)",
                    "repeat('{{', 100000)",
                    "repeat('a,', 100000)",
                    "repeat(U&'\\+01F600', 100000)",
                ]);
                if octets == Octets::Any {
                    values.extend(NO_TEXT);
                }
            }
            "bytea" => values.extend([
                "''",
                r"'\x00'",
                r"decode(repeat('00', 31), 'hex')",
                r"decode(repeat('ff', 32), 'hex')",
                r"decode(repeat('ff', 100000), 'hex')",
            ]),
            "jsonb" => {
                values.extend([
                    "'null'",
                    "'[]'",
                    "'{}'",
                    "'\"\"'",
                    "'-1e1000'",
                    "'[null, {}, [], 1, \"\", true]'",
                    "'[{\"recipients\": null}]'",
                    "'[{\"recipients\": [1, [], {}]}, {\"recipient\": {}}]'",
                    "'{\"\": \"\", \"a\": {\"a\": [[[]]]}, \"token\": 1, \"code\": [], \"link\": {}}'",
                    "(repeat('[', 5000) || repeat(']', 5000))",
                    "jsonb_agg(i) FROM generate_series(1, 10000) i",
                ]);
                if octets == Octets::Any {
                    values.extend([
                        r"to_jsonb(E'\xff'::text)",
                        r"jsonb_build_object(E'\xc0\x80', E'\xed\xa0\x80')",
                    ]);
                }
            }
            "timestamptz" => values.extend([
                "'infinity'",
                "'-infinity'",
                "'4714-11-24 00:00:00+00 BC'",
                "'294276-12-31 23:59:59.999999+00'",
                "'epoch'",
            ]),
            "interval" => values.extend([
                "'0'",
                "'-1 microsecond'",
                "'178000000 years'",
                "'-178000000 years'",
                "'2147483647 months 2147483647 days'",
            ]),
            "uuid" => values.extend(["'00000000-0000-0000-0000-000000000000'"]),
            "tid" => values.extend(["'(0,0)'", "'(4294967295,65535)'", "'(0,1)'"]),
            array if array.starts_with('_') => {
                values.extend([
                    "'{}'",
                    "'{NULL}'",
                    "'{NULL,NULL,NULL}'",
                    "'{{1,2},{3,4}}'",
                    "'[5:6]={1,2}'",
                    "'[-2147483648:-2147483647]={1,1}'",
                    "'{1,0,-1,1}'",
                    "'{\"\",\" \"}'",
                    "array_agg(i) FROM generate_series(1, 10000) i",
                ]);
                if octets == Octets::Any && array == "_text" {
                    values.extend([r"ARRAY[E'\xff', E'a\xc3@example.com']"]);
                }
            }
            _ => {}
        }
        let mut all: Vec<String> = values
            .into_iter()
            .map(|value| match value.split_once(" FROM ") {
                Some((aggregate, from)) => {
                    format!("(SELECT {aggregate} FROM {from})::{}", self.r#type)
                }
                None => self.cast(value),
            })
            .collect();
        all.extend(self.labels.iter().map(|label| self.cast(label)));
        all
    }

    /// A value of 20 MB, if the type has one.
    pub fn enormous(&self) -> Option<String> {
        const MANY: &str = "repeat(repeat('x', 1024), 20480)";
        let value = match self.base.as_str() {
            "text" | "varchar" => MANY.to_owned(),
            "bytea" => format!("convert_to({MANY}, 'SQL_ASCII')"),
            "jsonb" => format!("jsonb_build_object('a', {MANY})"),
            "json" => format!("json_build_object('a', {MANY})"),
            "_text" | "_varchar" => format!("ARRAY[{MANY}]"),
            _ => return None,
        };
        Some(self.cast(&value))
    }
}
