//! What is refused, and how that is told.

use crate::harness::origin::{OK, answering};
use crate::harness::{KEY, Names, Setup, node, told};

#[tokio::test]
async fn what_no_rule_allows_is_denied_by_name() {
    let node = node(Setup { rules: "packages.example, *.example.com:443", ..Setup::default() });
    let answer = node.get("http://Evil.org./x").await;
    let expected = "HTTP/1.1 403 evil.org port 80 is not allowed by the sandbox's rules (SANDBOX_EGRESS_ALLOW)\r\n";
    assert!(answer.starts_with(expected), "{answer}");
    assert!(answer.contains("proxy-status: agent-sandbox; error=http_request_denied; details=\"egress_denied\"\r\n"));
    let body = "{\"code\":\"egress_denied\",\"message\":\"evil.org port 80 is not allowed by the sandbox's rules \
                (SANDBOX_EGRESS_ALLOW)\",\"retryable\":false}";
    assert!(answer.ends_with(body), "{answer}");
    assert_eq!(told(&node.get("http://packages.example:8080/").await), "403 egress_denied");
    assert_eq!(told(&node.get("http://example.com.evil.org/").await), "403 egress_denied");
    assert_eq!(told(&node.get("http://a.example.com/").await), "403 egress_denied");
    let (_, head) = node.tunnel("packages.example:22").await;
    assert!(head.starts_with("HTTP/1.1 403 packages.example port 22 is not allowed by"), "{head}");
    let usage = node.egress.usage(KEY).unwrap();
    assert_eq!((usage.requests, usage.refusals, usage.idle_for), (5, 5, None));
}

#[tokio::test]
async fn the_operators_policy_caps_the_sandboxs_rules_and_says_so() {
    let node = node(Setup { rules: "*:*", policy: "*.org", ..Setup::default() });
    let answer = node.get("http://example.com/").await;
    assert!(answer.starts_with("HTTP/1.1 403 example.com port 80 is not allowed by the operator's policy\r\n"));
    assert_eq!(told(&answer), "403 egress_denied");
}

#[tokio::test]
async fn an_allowed_name_that_leads_inside_is_refused() {
    let (address, _requests) = answering(OK).await;
    let names = Names::default().lead("inside.test", &[&["127.0.0.1"]]).lead("meta.test", &[&["169.254.169.254"]]);
    let node = node(Setup { names, exceptions: String::new(), ..Setup::default() });
    for url in [format!("http://inside.test:{}/", address.port()), "http://meta.test/".to_owned()] {
        let answer = node.get(&url).await;
        assert_eq!(told(&answer), "403 egress_address");
        assert!(!answer.contains("127.0.0.1") && !answer.contains("169.254"), "an inner address is nobody's: {answer}");
        assert!(answer.contains("error=destination_ip_prohibited"), "{answer}");
    }
    let (_, head) = node.tunnel(&format!("inside.test:{}", address.port())).await;
    assert!(head.starts_with("HTTP/1.1 403 inside.test does not lead to public addresses only\r\n"), "{head}");
}

#[tokio::test]
async fn a_name_is_resolved_once_a_connection_and_judged_each_time() {
    let (address, _requests) = answering(OK).await;
    let names = Names::default().lead("turns.test", &[&["127.0.0.1"], &["127.0.0.9"]]);
    let node = node(Setup { names, exceptions: format!("127.0.0.1:{}", address.port()), ..Setup::default() });
    let url = format!("http://turns.test:{}/", address.port());
    assert_eq!(told(&node.get(&url).await), "200 -");
    assert_eq!(told(&node.get(&url).await), "403 egress_address");
}

#[tokio::test]
async fn an_address_needs_a_rule_of_its_own_and_must_be_public_even_then() {
    let (address, _requests) = answering(OK).await;
    let port = address.port();
    let by_star = node(Setup { rules: "*:*", ..Setup::default() });
    assert_eq!(told(&by_star.get(&format!("http://127.0.0.1:{port}/")).await), "403 egress_denied");
    let by_rule = node(Setup { rules: "127.0.0.1:*", exceptions: String::new(), ..Setup::default() });
    assert_eq!(told(&by_rule.get(&format!("http://127.0.0.1:{port}/")).await), "403 egress_address");
    let excepted = node(Setup { rules: "127.0.0.1:*", ..Setup::default() });
    assert_eq!(told(&excepted.get(&format!("http://127.0.0.1:{port}/")).await), "200 -");
    assert_eq!(told(&excepted.get(&format!("http://[::ffff:127.0.0.1]:{port}/")).await), "200 -");
}

#[tokio::test]
async fn odd_spellings_of_addresses_are_no_hosts_in_any_form_of_request() {
    let node = node(Setup { rules: "*:*,0.0.0.0/0:*,[::/0]:*", exceptions: String::new(), ..Setup::default() });
    for host in ["0x7f.1", "2130706433", "0177.0.0.1", "127.1", "0x7f000001", "0", "127.0.0.01"] {
        assert_eq!(told(&node.get(&format!("http://{host}/")).await), "400 egress_malformed", "{host}");
        let (_, head) = node.tunnel(&format!("{host}:443")).await;
        assert!(head.starts_with("HTTP/1.1 400 an IPv4 address is written as four decimal numbers"), "{head}");
    }
    let v4 = "127.0.0.1 10.0.0.1 169.254.169.254 0.0.0.0 100.100.100.200 255.255.255.255";
    let v6 =
        "[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::] [fd00:ec2::254]";
    for host in [v4, v6].into_iter().flat_map(str::split_whitespace) {
        assert_eq!(told(&node.get(&format!("http://{host}/")).await), "403 egress_address", "{host}");
    }
}

#[tokio::test]
async fn an_unknown_name_and_a_closed_port_may_be_tried_again() {
    let node = node(Setup::default());
    let unknown = node.get("http://unknown.test/").await;
    assert!(unknown.contains("error=dns_error") && unknown.ends_with("\"retryable\":true}"), "{unknown}");
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let refused = node.get(&format!("http://origin.test:{closed}/")).await;
    assert_eq!(told(&refused), "502 egress_unreachable");
    assert!(refused.contains("error=connection_refused"), "{refused}");
}
