//! What is refused and by which field, both sides of every limit, and what is made of reports.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::agent::TaskContext;

fn sound() -> Value {
    json!({
        "kind": "negotiation",
        "ticker": "ACME",
        "moves": [{ "move_id": "m1", "content": "Buy." }, { "id": "m2", "content": "Sell.", "title": "ignored" }],
    })
}

fn parsed(change: impl FnOnce(&mut Value)) -> Result<Negotiation, BadContext> {
    let mut json = sound();
    change(&mut json);
    TaskContext::parse(&json.to_string()).map(|context| context.negotiation.unwrap())
}

fn refused(message: &str, change: impl FnOnce(&mut Value)) {
    assert_eq!(parsed(change).unwrap_err().to_string(), format!("context_json: {message}"));
}

fn body() -> NegotiateBody {
    NegotiateBody {
        id: "r".into(),
        ticker: "ACME".into(),
        one: Move { move_id: "m1".into(), content: "Buy.".into() },
        max_rounds: 10,
        personas: BTreeMap::new(),
        provider: None,
        model: String::new(),
        env: BTreeMap::new(),
        timeout_ms: 0,
        attach_only: false,
    }
}

fn refused_body(message: &str, change: impl FnOnce(&mut NegotiateBody)) {
    let mut body = body();
    change(&mut body);
    assert_eq!(body.check().unwrap_err().reason(), message);
}

fn scores(metric: u32, reasoning: &str) -> Scores {
    let reasoning = Some(reasoning.to_owned());
    Scores { impact: metric, feasibility: metric, risk_adjusted_return: metric, strategic_alignment: metric, reasoning }
}

fn report(move_id: &str, metric: u32) -> MoveReport {
    let entry = |role: &str| ConversationEntry { role: role.into(), content: format!("On {move_id}."), round: 1 };
    let log = |maker: &str| vec![entry(CRITIC), entry(maker)];
    let logs = ConversationLogs { move_id: move_id.into(), i1: log("D1"), i2: log("D2"), i3: log("D3") };
    MoveReport {
        score: PolicyScore::of(move_id, [(); 3].map(|()| scores(metric, "Sound | <b>bold</b>\n![x](http://x.test)"))),
        transcript_hash: logs.hash(),
        logs,
        rounds: 1,
        error: None,
        ledger: Ledger { logical_calls: 7, input_tokens: 10, output_tokens: 5, ..Ledger::default() },
        warnings: Vec::new(),
    }
}

#[test]
fn a_negotiation_has_the_designs_defaults_and_reads_both_names_of_a_moves_id() {
    let read = parsed(|_| ()).unwrap();
    assert_eq!((read.max_rounds, read.concurrency), (NEGOTIATION_ROUNDS_DEFAULT, NEGOTIATION_CONCURRENCY_DEFAULT));
    assert_eq!(read.moves.iter().map(|one| one.move_id.as_str()).collect::<Vec<_>>(), ["m1", "m2"]);
    assert_eq!(read.moves[0].sandbox_name(&read.ticker), "negotiate-acme-m1");
}

#[test]
fn a_field_of_another_shape_is_refused_by_its_name() {
    refused("ticker: missing", |json| json["ticker"] = Value::Null);
    refused("ticker: not a text", |json| json["ticker"] = json!(1));
    refused("moves: missing", |json| drop(json.as_object_mut().unwrap().remove("moves")));
    refused("moves: not a list", |json| json["moves"] = json!("m1"));
    refused("moves: not a list", |json| json["moves"] = json!(["m1"]));
    refused("moves[1].move_id: missing", |json| json["moves"][1] = json!({ "content": "x" }));
    refused("moves[1].move_id: not a text", |json| json["moves"][1]["move_id"] = json!(2));
    refused("moves[1].move_id: not a text", |json| json["moves"][1] = json!({ "move_id": 2, "id": "a" }));
    refused("moves[0].content: missing", |json| json["moves"][0] = json!({ "move_id": "a" }));
    refused("moves[0].content: not a text", |json| json["moves"][0]["content"] = json!(["x"]));
    refused("max_rounds: not a whole number", |json| json["max_rounds"] = json!("ten"));
    refused("max_rounds: not a whole number", |json| json["max_rounds"] = json!(2.5));
    refused("max_rounds: not a whole number", |json| json["max_rounds"] = json!(-1));
    refused("concurrency: not a whole number", |json| json["concurrency"] = json!(1e12));
    refused("personas: not an object of texts", |json| json["personas"] = json!({ "critic": 1 }));
}

#[test]
fn a_ticker_and_a_moves_id_can_name_a_container() {
    for letters in ["", "A B", "A/B", "A_B", "ÄÖ", "a\n", "A$", &"A".repeat(TICKER_BYTES_MAX + 1)] {
        refused("ticker: 1 to 16 letters, digits, dots and dashes", |json| json["ticker"] = json!(letters));
    }
    for letters in ["", "m 1", "../m", "m;1", &"m".repeat(MOVE_ID_BYTES_MAX + 1)] {
        let message = "moves[1].move_id: 1 to 32 letters, digits, dots and dashes";
        refused(message, |json| json["moves"][1]["id"] = json!(letters));
    }
    let (ticker, id) = ("B".repeat(TICKER_BYTES_MAX), "M".repeat(MOVE_ID_BYTES_MAX));
    let longest = parsed(|json| (json["ticker"], json["moves"][1]["id"]) = (json!(ticker), json!(id))).unwrap();
    assert_eq!(longest.moves[1].sandbox_name(&longest.ticker).len(), "negotiate--".len() + 48);
    assert!(parsed(|json| json["ticker"] = json!("BRK.B-1")).is_ok());
}

proptest! {
    #[test]
    fn whatever_names_are_taken_make_a_containers_name(ticker in "[A-Za-z.-]{1,17}|.{0,4}", id in "[a-z0-9.-]{1,33}|.{0,4}") {
        let read = parsed(|json| (json["ticker"], json["moves"][1]["id"]) = (json!(ticker), json!(id)));
        let Ok(read) = read else { return Ok(()) };
        let name = read.moves[1].sandbox_name(&read.ticker);
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-';
        prop_assert!(name.len() <= 63 && name.bytes().all(is_plain), "{}", name);
    }
}

#[test]
fn moves_are_some_and_differ_in_any_case_of_letters() {
    let moves = |count: usize| (0..count).map(|n| json!({ "move_id": format!("m{n}"), "content": "x" })).collect();
    assert!(parsed(|json| json["moves"] = moves(1)).is_ok());
    assert!(parsed(|json| json["moves"] = moves(NEGOTIATION_MOVES_MAX)).is_ok());
    refused("moves: 1 to 64 are argued about", |json| json["moves"] = json!([]));
    refused("moves: 1 to 64 are argued about", |json| json["moves"] = moves(NEGOTIATION_MOVES_MAX + 1));
    refused("moves[1].move_id: M1 names another move already", |json| json["moves"][1]["id"] = json!("M1"));
}

#[test]
fn a_moves_content_is_a_text_of_some_length() {
    let long = |bytes: usize| json!("x".repeat(bytes));
    assert!(parsed(|json| json["moves"][0]["content"] = long(MOVE_CONTENT_BYTES_MAX)).is_ok());
    let message = "moves[0].content: a text of at most 65536 bytes";
    refused(message, |json| json["moves"][0]["content"] = long(MOVE_CONTENT_BYTES_MAX + 1));
    refused(message, |json| json["moves"][0]["content"] = json!(""));
    refused(message, |json| json["moves"][0]["content"] = json!(" \n\t"));
}

#[test]
fn rounds_and_moves_at_a_time_are_within_their_limits() {
    for (field, max) in [("max_rounds", NEGOTIATION_ROUNDS_MAX), ("concurrency", NEGOTIATION_CONCURRENCY_MAX)] {
        assert!(parsed(|json| json[field] = json!(1)).is_ok());
        assert!(parsed(|json| json[field] = json!(max)).is_ok());
        for absurd in [0, max + 1, u32::MAX] {
            refused(&format!("{field}: 1 to {max}"), |json| json[field] = json!(absurd));
        }
    }
}

#[test]
fn personas_are_those_of_the_four_agents_and_say_something() {
    let long = |bytes: usize| json!({ "critic": "x".repeat(bytes) });
    assert!(parsed(|json| json["personas"] = json!({ "D1": "a", "D2": "b", "D3": "c", "critic": "d" })).is_ok());
    assert!(parsed(|json| json["personas"] = long(PERSONA_BYTES_MAX)).is_ok());
    refused("personas.D4: critic, D1, D2 or D3", |json| json["personas"] = json!({ "D4": "a" }));
    let message = "personas.critic: a text of at most 16384 bytes";
    refused(message, |json| json["personas"] = long(PERSONA_BYTES_MAX + 1));
    refused(message, |json| json["personas"] = json!({ "critic": " " }));
}

#[test]
fn the_body_of_one_move_is_refused_by_the_same_rules() {
    assert_eq!(body().check(), Ok(()));
    let longest_id = NegotiateBody { id: "r".repeat(RUN_ID_BYTES_MAX), ..body() };
    assert_eq!(longest_id.check(), Ok(()));
    let longest_time = NegotiateBody { timeout_ms: TASK_TIMEOUT_MS_MAX, ..body() };
    assert_eq!(longest_time.check(), Ok(()));
    refused_body("id: a text of at most 128 bytes", |body| body.id.clear());
    refused_body("id: a text of at most 128 bytes", |body| body.id = "r".repeat(RUN_ID_BYTES_MAX + 1));
    refused_body("ticker: 1 to 16 letters, digits, dots and dashes", |body| body.ticker = "A B".into());
    refused_body("move.content: a text of at most 65536 bytes", |body| body.one.content.clear());
    refused_body("move.move_id: 1 to 32 letters, digits, dots and dashes", |body| body.one.move_id.clear());
    refused_body("max_rounds: 1 to 20", |body| body.max_rounds = 0);
    refused_body("max_rounds: 1 to 20", |body| body.max_rounds = NEGOTIATION_ROUNDS_MAX + 1);
    refused_body("timeout_ms: at most 3300000", |body| body.timeout_ms = TASK_TIMEOUT_MS_MAX + 1);
    refused_body("personas.D4: critic, D1, D2 or D3", |body| drop(body.personas.insert("D4".into(), "a".into())));
}

#[test]
fn a_plan_counts_calls_and_stages() {
    assert_eq!(plan(1), Plan { calls: 7, stages: 3 });
    assert_eq!(plan(10), Plan { calls: 61, stages: 21 });
    assert_eq!(plan(20), Plan { calls: 121, stages: 41 });
}

#[test]
fn a_result_has_the_designs_fields_in_the_order_of_the_moves() {
    let isolation = BTreeMap::from([("m2".to_owned(), "runc".to_owned())]);
    let failed = MoveReport { warnings: vec!["slow".into()], ..MoveReport::unscored("m1", "no sandbox") };
    let result = NegotiationResult::of(vec![report("m2", 8), failed], isolation, vec!["odd".into()]);
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(
        json["policy_scores"][0]["scores_by_agent"]["D3"],
        json!({
            "impact": 8, "feasibility": 8, "risk_adjusted_return": 8, "strategic_alignment": 8,
            "reasoning": "Sound | <b>bold</b>\n![x](http://x.test)"
        })
    );
    assert_eq!(json["policy_scores"][0]["total_score"], 96);
    assert_eq!(
        (&json["policy_scores"][1]["move_id"], &json["policy_scores"][1]["total_score"]),
        (&json!("m1"), &json!(60))
    );
    assert_eq!(json["conversation_logs"][0]["i2"][1], json!({ "role": "D2", "content": "On m2.", "round": 1 }));
    assert_eq!(json["conversation_logs"][1], json!({ "move_id": "m1", "i1": [], "i2": [], "i3": [] }));
    assert_eq!(json["errors"], json!({ "m1": "no sandbox" }));
    assert_eq!(json["warnings"], json!(["odd", "m1: slow"]));
    assert_eq!(json["isolation"], json!({ "m2": "runc" }));
    assert_eq!((&json["ledger"]["logical_calls"], &json["ledger"]["scores_neutral"]), (&json!(7), &json!(3)));
    assert_eq!(serde_json::from_value::<NegotiationResult>(json).unwrap(), result);
}

#[test]
fn ledgers_add_up_and_costs_that_nobody_knows_stay_unknown() {
    let one = Ledger {
        logical_calls: 1,
        retries: 2,
        summaries: 3,
        failed_calls: 4,
        scores_from_fence: 5,
        scores_by_regex: 6,
        scores_neutral: 7,
        input_tokens: 8,
        output_tokens: 9,
        cost_micro_usd: Some(10),
    };
    let mut sum = Ledger::default();
    sum += &Ledger::default();
    assert_eq!(sum, Ledger::default());
    sum += &one;
    assert_eq!(sum, one);
    sum += &one;
    let doubled: Vec<_> = serde_json::to_value(&sum).unwrap().as_object().unwrap().values().cloned().collect();
    let of_one = serde_json::to_value(&one).unwrap();
    let expected: Vec<_> = of_one.as_object().unwrap().values().map(|n| json!(2 * n.as_u64().unwrap())).collect();
    assert_eq!(doubled, expected);
}

#[test]
fn conversations_go_to_files_and_come_back() {
    let logs = report("m1", 5).logs;
    let files = logs.files();
    assert_eq!(files.each_ref().map(|(name, _)| name.as_str()), ["i1.json", "i2.json", "i3.json"]);
    let first = "[\n  {\n    \"role\": \"critic\",\n    \"content\": \"On m1.\",\n    \"round\": 1\n  },\n";
    assert!(files[0].1.starts_with(first.as_bytes()));
    let read = ConversationLogs::of_files("m1", files.each_ref().map(|(_, bytes)| bytes.as_slice())).unwrap();
    assert_eq!(read, logs);
    assert!(ConversationLogs::of_files("m1", [b"[]", b"[]", b"[{"]).is_err());
}

#[test]
fn hashes_are_those_of_the_documented_form() {
    let logs = report("m1", 5).logs;
    // echo -n '[[{"role":"critic","content":"On m1.","round":1},{"role":"D1",…}],…]' | sha256sum
    assert_eq!(logs.hash(), "c87cf919e3401ec72e6bceaa469b5e691d1b8eef7097a3ab6662b2bd2698ac18");
    let renamed = ConversationLogs { move_id: "m2".into(), ..logs.clone() };
    assert_eq!(renamed.hash(), logs.hash(), "a hash is of what was said");
    let mut other = logs.clone();
    std::mem::swap(&mut other.i1, &mut other.i2);
    assert_ne!(other.hash(), logs.hash());
    let result = NegotiationResult::of(vec![report("m1", 5), report("m2", 5)], BTreeMap::new(), Vec::new());
    assert_eq!(result.transcript_hash, "161ebf761158e7f685c25e59d009838d9553be1c290bc3618ac968c389811ae4");
}
