//! Rules that every key and every file must hold to.

use proptest::prelude::*;

use crate::config::keys::{self, Form};

#[test]
fn the_ranges_in_the_descriptions_are_the_real_ones() {
    let command = keys::command();
    let mut checked = 0;
    for key in keys::keys() {
        let help = key.help();
        let Some((low, high)) = range(&help) else {
            let needs = key.form() == Form::Number || key.placeholder() == "TIME";
            assert!(!needs, "{} has no range: {help}", key.path());
            continue;
        };
        checked += 1;
        let accepts = |value: String| key.check(&command, &[value]).is_ok();
        assert!(
            accepts(low.to_owned()) && accepts(high.to_owned()),
            "{}: {help}",
            key.path()
        );
        let ((low, unit), (high, high_unit)) = (number(low), number(high));
        assert!(
            !accepts(format!("{}{unit}", low - 1)),
            "{}: below {help}",
            key.path()
        );
        assert!(
            !accepts(format!("{}{high_unit}", high + 1)),
            "{}: above {help}",
            key.path()
        );
    }
    assert!(checked > 0);
}

/// The range at the end of a description: `(1ms to 24h)`.
fn range(help: &str) -> Option<(&str, &str)> {
    help.strip_suffix(')')?
        .rsplit_once('(')?
        .1
        .split_once(" to ")
}

fn number(text: &str) -> (i128, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (text[..end].parse().unwrap(), &text[end..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn any_file_is_taken_or_refused_with_its_lines(text in "([a-z_.\\[\\]\"'= \n0-9#]{0,60}|\\PC{0,40})") {
        let (keys, command) = (keys::keys(), keys::command());
        let path = std::path::Path::new("f.toml");
        if let Err(problems) = crate::config::file::parse(path, &text, &keys, &command) {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                prop_assert!(problem.starts_with("f.toml: line "), "{}", problem);
                prop_assert!(!problem.contains('\n'), "{}", problem);
            }
        }
    }
}
