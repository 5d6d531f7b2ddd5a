//! Properties of rules: whatever is written, a rule allows what it says and nothing beside it.

use proptest::prelude::*;
use sandbox_outbound::address::Host;
use sandbox_outbound::egress::Rules;

fn label() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,8}"
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(label(), 1..4).prop_map(|labels| labels.join("."))
}

fn allows(rules: &str, host: &str, port: u16) -> bool {
    rules.parse::<Rules>().unwrap().allow(&Host::parse(host).unwrap(), port)
}

proptest! {
    #[test]
    fn no_text_confuses_the_reader(text in "\\PC{0,200}") {
        drop(text.parse::<Rules>());
    }

    #[test]
    fn text_like_rules_does_not_confuse_it_either(text in "[a-z0-9*.:,/\\[\\] -]{0,60}") {
        drop(text.parse::<Rules>());
    }

    #[test]
    fn a_suffix_holds_below_itself_and_nowhere_else(suffix in name(), inner in name(), other in name()) {
        let rule = format!("*.{suffix}");
        let (below, beside) = (format!("{inner}.{suffix}"), format!("{inner}{suffix}"));
        prop_assert!(allows(&rule, &below, 443));
        prop_assert!(!allows(&rule, &suffix, 443));
        prop_assert!(!allows(&rule, &beside, 443));
        let behind = format!("{suffix}.{other}");
        prop_assert_eq!(allows(&rule, &behind, 443), behind.ends_with(&format!(".{suffix}")));
    }

    #[test]
    fn a_name_holds_for_itself_with_its_ports(one in name(), other in name(), allowed in 1u16.., asked in 1u16..) {
        let (with_port, with_any) = (format!("{one}:{allowed}"), format!("{one}:*"));
        prop_assert!(allows(&with_port, &one, allowed));
        prop_assert_eq!(allows(&with_port, &one, asked), allowed == asked);
        prop_assert_eq!(allows(&with_any, &other, asked), one == other);
        prop_assert_eq!(allows(&one, &one, asked), asked == 80 || asked == 443);
    }

    #[test]
    fn no_rule_of_names_holds_for_an_address(bits: u32, port in 1u16.., suffix in name()) {
        let address = std::net::Ipv4Addr::from_bits(bits).to_string();
        let rules = format!("*:*,*.{suffix}:*,{suffix}:*");
        prop_assert!(!allows(&rules, &address, port));
        prop_assert!(!allows(&rules, &std::net::Ipv6Addr::from_bits(u128::from(bits) << 90).to_string(), port));
    }

    #[test]
    fn adding_a_rule_takes_nothing_away(rules in prop::collection::vec(name(), 1..5), more in name(), asked in name()) {
        let before = rules.join(",");
        let after = format!("{before},{more}");
        prop_assert!(!allows(&before, &asked, 443) || allows(&after, &asked, 443));
    }
}
