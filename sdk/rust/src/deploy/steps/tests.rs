//! What is left to do, from every state that a run may be interrupted in.

use super::super::standing::Contract;
use super::*;
use crate::contracts::ITangleCore::BlueprintConfig;

const OWNER: Address = Address::repeat_byte(1);
const STRANGER: Address = Address::repeat_byte(2);
const MANAGER: Address = Address::repeat_byte(3);
const TOKEN: Address = Address::repeat_byte(4);
const FACTORY_CALL: &str = "create2";

fn plan(terms: Terms) -> Plan {
    let url = "http://127.0.0.1:1".parse().unwrap();
    Plan { terms, ..Plan::new(url, Address::repeat_byte(9), "artifact.json".into(), 1_000) }
}

fn usdc() -> Asset {
    Asset { address: TOKEN, symbol: "USDC".into(), decimals: 6 }
}

fn floor(units: u64) -> Terms {
    let floor = Floor { asset: usdc(), per_operator_hour: U256::from(units) };
    Terms { floor: Some(floor), ..Terms::default() }
}

/// A table in a token whose prices are all alike but for one.
fn table(exec: &str) -> PriceTable {
    let mut rates: BTreeMap<&str, &str> = Job::ALL.iter().map(|job| (job.name(), "0.5")).collect();
    rates.insert("exec", exec);
    let file = serde_json::from_value(serde_json::json!({ "asset": TOKEN, "rates": rates })).unwrap();
    PriceTable::new(&file, usdc()).unwrap()
}

fn priced(exec: &str) -> Terms {
    Terms { prices: Some(table(exec)), ..Terms::default() }
}

fn without_contract() -> Standing {
    let invocation = Invocation { to: MANAGER, input: Default::default(), value: U256::ZERO };
    let creation = Creation { invocation, salt: B256::ZERO, creation_bytes: 0, runtime_bytes: 0 };
    let contract = Contract { at: MANAGER, creator: OWNER, creation: Some(creation) };
    Standing { contract, blueprint: None, next_blueprint: 7 }
}

fn without_blueprint() -> Standing {
    let mut standing = without_contract();
    standing.contract.creation = None;
    standing
}

/// What stands after the steps.
fn after(mut standing: Standing, steps: &[Step]) -> Standing {
    for step in steps {
        let blueprint = standing.blueprint.as_mut();
        match (step, blueprint) {
            (Step::CreateContract { .. }, _) => standing.contract.creation = None,
            (Step::CreateBlueprint { id, definition, .. }, _) => {
                standing.blueprint = Some(created(*id, definition));
                standing.next_blueprint += 1;
            }
            (Step::SetAsset { asset, .. }, Some(blueprint)) => blueprint.asset = asset.address,
            (Step::SetRates { rates, .. }, Some(blueprint)) => blueprint.rates.extend(rates.clone()),
            (Step::SetFloor { floor, .. }, Some(blueprint)) => {
                blueprint.floor = (floor.asset.address, floor.per_operator_hour);
            }
            (Step::SetSources { release, .. }, Some(blueprint)) => blueprint.sources = sources_hash(&sources(release)),
            (Step::SetMetadata { uri, .. }, Some(blueprint)) => blueprint.metadata_uri = uri.clone(),
            (step, None) => panic!("{step:?} before there is a blueprint"),
        }
    }
    standing
}

fn created(id: u64, definition: &BlueprintDefinition) -> Blueprint {
    Blueprint {
        id,
        owner: OWNER,
        config: definition.config.clone(),
        asset: Address::ZERO,
        rates: Job::ALL.into_iter().map(|job| (job, definition.config.eventRate)).collect(),
        floor: (Address::ZERO, U256::ZERO),
        metadata_uri: definition.metadataUri.clone(),
        sources: sources_hash(&definition.sources),
    }
}

fn left(standing: &Standing, plan: &Plan) -> Result<Vec<Step>, DeployError> {
    remaining(standing, plan, (OWNER, false))
}

fn names(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().map(|step| step.sending().function).collect()
}

#[track_caller]
fn refused(standing: &Standing, plan: &Plan, sentence: &str) {
    let error = left(standing, plan).unwrap_err();
    assert_eq!(error.to_string(), sentence);
}

/// Every deployment that can be asked for, with the functions that it takes.
fn deployments() -> Vec<(Terms, &'static [&'static str])> {
    let pricing = |pricing, terms| Terms { pricing: Some(pricing), ..terms };
    let subscription = Pricing::Subscription { rate: U256::from(5_000_000), interval_s: 3_600 };
    vec![
        (Terms::default(), &[FACTORY_CALL, "createBlueprint", "setJobEventRates"]),
        (priced("0.05"), &[FACTORY_CALL, "createBlueprint", "setBlueprintSettlementAsset", "setJobEventRates"]),
        (pricing(Pricing::PayOnce, floor(10)), &[FACTORY_CALL, "createBlueprint", "setServiceFloor"]),
        (pricing(subscription, floor(10)), &[FACTORY_CALL, "createBlueprint", "setServiceFloor"]),
    ]
}

#[test]
fn a_deployment_takes_these_transactions_and_after_them_none() {
    for (terms, functions) in deployments() {
        let plan = plan(terms);
        let steps = left(&without_contract(), &plan).unwrap();
        assert_eq!(names(&steps), functions);
        let standing = after(without_contract(), &steps);
        assert!(left(&standing, &plan).unwrap().is_empty());
    }
}

#[test]
fn a_run_that_was_interrupted_after_any_step_is_continued_by_the_same_transactions() {
    for (terms, functions) in deployments() {
        let plan = plan(terms);
        let steps = left(&without_contract(), &plan).unwrap();
        for done in 0..=steps.len() {
            let standing = after(without_contract(), &steps[..done]);
            let rest = left(&standing, &plan).unwrap();
            assert_eq!(names(&rest), functions[done..]);
            let inputs = |steps: &[Step]| steps.iter().map(|step| step.invocation().input).collect::<Vec<_>>();
            assert_eq!(inputs(&rest), inputs(&steps[done..]));
        }
    }
}

/// A complete deployment in a token.
fn complete() -> (Standing, Plan) {
    let plan = plan(priced("0.05"));
    let steps = left(&without_contract(), &plan).unwrap();
    (after(without_contract(), &steps), plan)
}

#[test]
fn only_prices_that_differ_are_set() {
    let (standing, mut plan) = complete();
    plan.terms = priced("0.07");
    let steps = left(&standing, &plan).unwrap();
    let [Step::SetRates { rates, blueprint: 7, .. }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(rates, &BTreeMap::from([(Job::Exec, U256::from(70_000))]));
}

#[test]
fn what_is_not_asked_for_stays_as_it_stands() {
    let (standing, _) = complete();
    let mut plan = plan(Terms::default());
    plan.release = None;
    assert!(left(&standing, &plan).unwrap().is_empty(), "neither the built-in prices nor the coin come back");
    let uniform = after(without_contract(), &left(&without_contract(), &self::plan(priced("0.5"))).unwrap());
    assert!(remaining(&uniform, &plan, (OWNER, true)).unwrap().is_empty());
}

#[test]
fn prices_in_a_token_are_not_guessed() {
    let (whole, plan) = complete();
    let mut standing = whole.clone();
    let blueprint = standing.blueprint.as_mut().unwrap();
    blueprint.rates.values_mut().for_each(|rate| *rate = blueprint.config.eventRate);
    let bare = Plan { terms: Terms::default(), ..plan };
    let expected = format!("blueprint 7 settles in {TOKEN} and has no prices yet: give a price table in that asset");
    refused(&standing, &bare, &expected);
}

#[test]
fn the_asset_of_a_priced_blueprint_changes_only_when_that_is_said() {
    let (standing, mut plan) = complete();
    plan.terms = Terms { prices: Some(PriceTable::built_in()), ..Terms::default() };
    let expected = format!(
        "blueprint 7 settles in {TOKEN}, the prices are in {}: services that run keep their asset and would be charged the \
         new rates in it",
        Address::ZERO
    );
    refused(&standing, &plan, &expected);
    plan.terms.asset_may_change = true;
    assert_eq!(names(&left(&standing, &plan).unwrap()), ["setBlueprintSettlementAsset", "setJobEventRates"]);
}

#[test]
fn the_asset_is_set_before_the_prices() {
    let steps = left(&without_blueprint(), &plan(priced("0.05"))).unwrap();
    let at = |name: &str| names(&steps).iter().position(|found| *found == name);
    assert!(at("setBlueprintSettlementAsset") < at("setJobEventRates"), "small units never meet the wrong asset");
}

#[test]
fn jobs_that_cost_the_least_need_no_rate_of_their_own() {
    let steps = left(&without_contract(), &plan(Terms::default())).unwrap();
    let [_, Step::CreateBlueprint { definition, .. }, Step::SetRates { rates, .. }] = &steps[..] else {
        panic!("{steps:?}")
    };
    let least = PriceTable::built_in().least();
    assert_eq!(definition.config.eventRate, least);
    assert!(!rates.contains_key(&Job::SandboxDelete) && rates.values().all(|rate| *rate > least), "{rates:?}");
}

#[test]
fn pricing_is_fixed_with_its_terms() {
    let subscription = |rate| Pricing::Subscription { rate: U256::from(rate), interval_s: 60 };
    let asked = |pricing, terms| plan(Terms { pricing: Some(pricing), ..terms });
    let monthly = asked(subscription(5), floor(10));
    let standing = after(without_contract(), &left(&without_contract(), &monthly).unwrap());
    refused(
        &standing,
        &asked(subscription(6), floor(10)),
        "blueprint 7 is a subscription of 5 units per 60 s, which the core does not change; a subscription of 6 units per \
         60 s takes a deployment of its own",
    );
    let event_driven = asked(Pricing::EventDriven, Terms::default());
    assert!(left(&standing, &event_driven).is_err());
    refused(
        &without_contract(),
        &asked(subscription(0), floor(1)),
        "a subscription's rate and interval must be above zero",
    );
}

#[test]
fn a_floor_and_job_prices_exclude_each_other() {
    let floor_of_calls = "an event-driven blueprint is paid by the call: it has job prices and no floor";
    refused(&without_contract(), &plan(floor(10)), floor_of_calls);
    let priced = Terms { pricing: Some(Pricing::PayOnce), ..priced("0.5") };
    let expected = "job prices are for event-driven blueprints: this one is pay-once and has a floor";
    refused(&without_contract(), &plan(priced), expected);
}

#[test]
fn services_that_are_paid_as_a_whole_need_a_floor_until_it_is_lifted_on_purpose() {
    let no_floor = "a blueprint that is pay-once needs a floor: without one its services may be paid with nothing";
    let without = plan(Terms { pricing: Some(Pricing::PayOnce), ..Terms::default() });
    refused(&without_contract(), &without, no_floor);
    let with = plan(Terms { pricing: Some(Pricing::PayOnce), ..floor(10) });
    let standing = after(without_contract(), &left(&without_contract(), &with).unwrap());
    assert!(left(&standing, &without).unwrap().is_empty());
    let higher = left(&standing, &plan(floor(11))).unwrap();
    assert_eq!(names(&higher), ["setServiceFloor"]);
    let lifted = after(standing.clone(), &left(&standing, &plan(floor(0))).unwrap());
    refused(&lifted, &without, no_floor);
    assert!(remaining(&lifted, &without, (OWNER, true)).unwrap().is_empty(), "the owner has settled that");
}

#[test]
fn a_floor_stays_in_its_asset_unless_a_change_is_said() {
    let with = plan(Terms { pricing: Some(Pricing::PayOnce), ..floor(10) });
    let standing = after(without_contract(), &left(&without_contract(), &with).unwrap());
    let in_coin = |units, asset_may_change| {
        let floor = Floor { asset: Asset::coin(), per_operator_hour: U256::from(units) };
        plan(Terms { floor: Some(floor), asset_may_change, ..Terms::default() })
    };
    let expected = format!(
        "the floor of blueprint 7 is in {TOKEN}, not in {}: services would have to be paid in another asset",
        Address::ZERO
    );
    refused(&standing, &in_coin(11, false), &expected);
    assert_eq!(names(&left(&standing, &in_coin(11, true)).unwrap()), ["setServiceFloor"]);
    assert_eq!(names(&left(&standing, &in_coin(0, false)).unwrap()), ["setServiceFloor"], "nothing has no asset");
}

#[test]
fn a_new_release_is_pointed_to() {
    let (standing, mut plan) = complete();
    plan.terms = Terms::default();
    let release = Release { sha256: B256::repeat_byte(8), ..Release::unpublished() };
    plan.release = Some(release.clone());
    assert_eq!(names(&left(&standing, &plan).unwrap()), ["setBlueprintSources"]);
    plan.release = Some(Release { metadata_uri: "https://moved.example".into(), ..release });
    assert_eq!(names(&left(&standing, &plan).unwrap()), ["setBlueprintSources", "updateBlueprint"]);
}

#[test]
fn only_its_creator_and_then_its_owner_can_change_a_blueprint() {
    let (standing, plan) = complete();
    let by = |standing: &Standing, plan: &Plan| remaining(standing, plan, (STRANGER, false));
    assert!(by(&standing, &plan).unwrap().is_empty(), "nothing is left to do, so nobody is refused");
    let dearer = Plan { terms: priced("0.07"), ..plan.clone() };
    let error = by(&standing, &dearer).unwrap_err().to_string();
    assert_eq!(error, format!("blueprint 7 belongs to {OWNER}, {STRANGER} cannot change it"));
    let error = by(&without_blueprint(), &plan).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("the blueprint of the contract at {MANAGER} must be created by {OWNER}, not by {STRANGER}")
    );
}

#[test]
fn a_new_blueprint_needs_a_release() {
    let plan = Plan { release: None, ..plan(Terms::default()) };
    refused(&without_contract(), &plan, "a new blueprint needs a release: where operators' managers fetch the program");
}

#[test]
fn a_pricing_that_is_unknown_here_is_left_alone() {
    let (mut standing, plan) = complete();
    let config = &mut standing.blueprint.as_mut().unwrap().config;
    *config = BlueprintConfig { pricing: 9, ..config.clone() };
    refused(&standing, &plan, "blueprint 7 has a pricing that is unknown here: 9");
}
