//! `show bgp aggregates`.

use std::io::{self, Write};

use holdfast_api::bgp::v1::{AggregateState, BgpClient, Empty};
use serde_json::{Value, json};

use crate::{
    Failure,
    json::line,
    router::{Router, answer},
    text::{Table, or_dash},
};

pub(super) async fn show(router: &Router, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let bgp: BgpClient = router.client("bgp").await?;
    let aggregates = answer(bgp.show_aggregates(Empty {})).await?.aggregates;
    match as_json {
        true => line(out, &Value::from_iter(aggregates.iter().map(to_json)))?,
        false => write(&aggregates, out)?,
    }
    Ok(())
}

fn to_json(aggregate: &AggregateState) -> Value {
    json!({
        "prefix": aggregate.prefix,
        "summaryOnly": aggregate.summary_only,
        "contributors": aggregate.contributors,
        "counting": aggregate.counting,
        "active": !aggregate.origin.is_empty(),
        "origin": or_dash(&aggregate.origin),
    })
}

fn write(aggregates: &[AggregateState], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&["Aggregate", "State", "Routes inside", ">Contributors", "Origin"]);
    for aggregate in aggregates {
        table.row(row(aggregate));
    }
    table.write(out)
}

fn row(aggregate: &AggregateState) -> [String; 5] {
    let state = match (aggregate.counting, aggregate.origin.is_empty()) {
        (true, _) => "counting",
        (false, true) => "no route inside",
        (false, false) => "announced",
    };
    [
        aggregate.prefix.clone(),
        state.to_owned(),
        (if aggregate.summary_only { "kept back" } else { "announced" }).to_owned(),
        aggregate.contributors.to_string(),
        or_dash(&aggregate.origin).to_owned(),
    ]
}
