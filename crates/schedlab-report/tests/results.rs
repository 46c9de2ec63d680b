//! A whole result, made from toy runs: its JSON keeps to the published schema and survives a round trip, its
//! text and its trace say what they must.

#[path = "../examples/toy/compared.rs"]
mod compared;
#[path = "support/schema.rs"]
mod schema;
#[path = "../examples/toy/mod.rs"]
mod toy;

use schedlab_report::html::{self, Picture};
use schedlab_report::timeline::Timeline;
use schedlab_report::{json, text};

const SCHEMA_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/result.schema.json");

#[test]
fn the_published_schema_is_that_of_the_types() {
    schema::assert_published(SCHEMA_FILE, &json::schema());
}

#[test]
fn results_keep_to_the_schema_and_survive_a_round_trip() {
    let (result, _) = compared::result();
    let text = json::to_json(&result);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let schema: serde_json::Value = serde_json::from_str(&json::schema()).expect("JSON");
    let errors = schema::errors(&schema, &value);
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(json::from_json(&text).expect("our own") == result, "reading back gives another result");
}

#[test]
fn the_schema_check_finds_what_is_wrong() {
    let (result, _) = compared::result();
    let mut value = serde_json::to_value(&result).expect("JSON");
    let schema: serde_json::Value = serde_json::from_str(&json::schema()).expect("JSON");
    value["obtained"] = "guessed".into();
    value["runs"][0]["seed"] = "one".into();
    value["comparison"]["overall"] = serde_json::json!({ "is": "use" });
    value.as_object_mut().expect("an object").remove("notes");
    let errors = schema::errors(&schema, &value).join("\n");
    for part in ["/obtained", "/runs/0/seed", "/comparison", "notes"] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
}

#[test]
fn other_versions_are_refused_with_the_remedy() {
    let error = json::from_json("{\"schema_version\": 99}").expect_err("too new").to_string();
    assert!(error.contains("99") && error.contains("run again"), "{error}");
    assert!(json::from_json("[]").is_err() && json::from_json("{").is_err());
}

#[test]
fn text_has_triage_first_losers_too_and_the_next_command_last() {
    let (result, _) = compared::result();
    let text = text::render(&result, text::TextOptions::default());
    assert!(text.starts_with("Triage     run delay is 1.2"), "{text}");
    assert!(text.trim_end().ends_with("schedlab vm try vtime -- mix"), "{text}");
    for part in ["fifo ", "worse", "needs a kernel with sched_ext", "BROKEN", "Verdict", "noise floor"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains('\x1b'), "no colour unless asked for");
    let colored = text::render(&result, text::TextOptions { color: true });
    assert!(colored.contains("\x1b[31m"));
}

fn pictures(made: Vec<(String, toy::Made)>) -> Vec<Picture> {
    let picture = |(candidate, made): (String, toy::Made)| {
        let cpus = made.topology.cpu_count();
        let timeline = Timeline::new(&made.events, &made.tasks, cpus, made.length);
        Picture { candidate, timeline, target: made.tasks.iter().map(|task| task.target).collect() }
    };
    made.into_iter().map(picture).collect()
}

#[test]
fn the_page_is_self_contained_and_names_cannot_break_it() {
    let (result, made) = compared::result();
    let page = html::page(&result, &pictures(made));
    for forbidden in
        ["http:", "https:", "<script", "<link", "@import", "url(", "video<1>", "audio & 4", "NaN", "inf\""]
    {
        assert!(!page.contains(forbidden), "{forbidden} in the page");
    }
    let pictured =
        ["video&lt;1&gt;", "audio &amp; 4", "batch&quot;7", "id=\"q5\"", "Can scheduling help", "Next"];
    for wanted in pictured {
        assert!(page.contains(wanted), "{wanted} in the page");
    }
    // Every candidate is ranked, drawn and has its picture.
    assert_eq!(page.matches("class=\"panel\"").count(), result.candidates.len());
    assert_eq!(page.matches("class=\"plot\"><svg").count(), result.candidates.len() + 1);
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}

#[test]
fn tags_of_the_page_are_balanced() {
    let (result, made) = compared::result();
    let page = html::page(&result, &pictures(made));
    let body = &page[page.find("<body>").expect("a body")..];
    for tag in
        ["section", "table", "tr", "td", "th", "svg", "text", "ul", "li", "div", "details", "p", "span"]
    {
        let opened = body.matches(&format!("<{tag}>")).count() + body.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, body.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn a_single_run_and_an_empty_result_have_a_page_and_text_too() {
    let (mut result, made) = compared::result();
    result.comparison = None;
    result.runs.truncate(1);
    result.candidates.truncate(1);
    let page = html::page(&result, &pictures(made)[..1]);
    assert!(page.contains("<h1>mix.rec, block 1, mix.rec, block 2 under fair</h1>"));
    assert!(text::render(&result, text::TextOptions::default()).contains("wakeup_latency_p99"));
    let empty = schedlab_report::ResultFile::default();
    assert!(html::page(&empty, &[]).contains("How this was obtained"));
    assert!(text::render(&empty, text::TextOptions::default()).starts_with("Obtained"));
}

#[test]
fn the_kernel_developers_table_is_normalised_to_the_baseline() {
    let (result, _) = compared::result();
    let table = schedlab_report::kernel_table::kernel_table(
        &result,
        &[schedlab_model::metric::Metric::RunDelayMean, schedlab_model::metric::Metric::Makespan],
    );
    assert!(table.contains("Interpretation: Lower is better"), "{table}");
    assert!(table.contains("fair[pct imp](CV)") && table.contains("1.00 [   0.00]("), "{table}");
    assert!(!table.contains("makespan"), "no run has one");
}
