//! The description as the manual page holdfast.toml(5).

use std::fmt::Write;

use super::{Key, Table, headers};

/// The page, in roff.
pub fn man_page(file: &'static Table) -> String {
    let mut page = String::from(
        ".TH holdfast.toml 5\n.SH NAME\nholdfast.toml \\- configuration of a holdfast router\n.SH DESCRIPTION\n\
         One TOML file. Unknown keys are errors;\n.B holdfast check\nreports all that is wrong.\n",
    );
    for header in headers(file) {
        let _ = writeln!(page, ".SH {}\n{}", escaped(&header.title()), escaped(header.table.doc));
        keys(&mut page, "", header.table);
    }
    page.push_str(".SH SEE ALSO\n.BR holdfast (1),\n.BR holdfast-configure (1)\n");
    page
}

fn keys(page: &mut String, above: &str, table: &'static Table) {
    for key in table.keys {
        let name = format!("{above}{}", key.name);
        let _ = writeln!(page, ".TP\n.B {}\n{}", escaped(&name), escaped(&entry(key)));
        if let super::Type::Either(_) = key.value
            && let Some(inline) = key.value.inline()
        {
            keys(page, &format!("{name}."), inline);
        }
    }
}

fn entry(key: &Key) -> String {
    match key.value {
        super::Type::Table(table) | super::Type::Tables(table, _) => table.doc.to_owned(),
        _ => format!(
            "{}: {}. Default: {}. Changes by: {}.",
            key.value.words(),
            key.doc,
            key.default.words(),
            key.effect.words()
        ),
    }
}

/// Without what roff would obey, and without the marks of Markdown.
fn escaped(text: &str) -> String {
    let text = text.replace('`', "").replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}
