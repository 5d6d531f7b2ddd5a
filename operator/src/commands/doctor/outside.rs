//! Checks of what customers see: the API at its published URL, and its certificate.

use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::tls::TlsInfo;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Finding;
use crate::admin::Node;
use crate::config::Config;
use crate::limits::{CHECK_TIMEOUT, TLS_LEFT_S_LOW};

const CHECK: &str = "api";

/// Whether customers reach the API, and for how long its certificate is good.
pub(super) async fn api(config: &Config) -> Finding {
    let url = format!("{}/health", config.offer.api_url);
    let client = reqwest::Client::builder().timeout(CHECK_TIMEOUT).tls_info(true).build();
    let answer = match client {
        Ok(client) => client.get(&url).send().await,
        Err(error) => return Finding::failed(CHECK, &error, "see the machine's certificates"),
    };
    match answer {
        Ok(answer) if answer.status().is_success() => {
            let certificate = answer.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
            match certificate {
                Some(certificate) => expiry(config, certificate),
                None => Finding::ok(CHECK, format!("{} answers", config.offer.api_url)),
            }
        }
        Ok(answer) => Finding::failure(
            CHECK,
            format!("{url} answers with status {}", answer.status()),
            "see what answers there: API_URL must lead to this node",
        ),
        Err(error) if matches!(Node::running(&config.data_dir).await, Ok(Some(_))) => {
            Finding::failed(CHECK, &error, "see that API_URL leads to this node, through proxy and firewall")
        }
        Err(_) => Finding::warning(CHECK, format!("{url} does not answer; no node runs"), "check again once it runs"),
    }
}

fn expiry(config: &Config, certificate: &[u8]) -> Finding {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match X509Certificate::from_der(certificate) {
        Ok((_, parsed)) => {
            let left_s = parsed.validity().not_after.timestamp() - i64::try_from(now_s).unwrap_or(i64::MAX);
            judged(&config.offer.api_url, left_s)
        }
        Err(error) => Finding::failed(CHECK, &error, "renew the certificate"),
    }
}

fn judged(url: &str, left_s: i64) -> Finding {
    let said = format!("{url} answers; its certificate is good for {} days", left_s / (24 * 3_600));
    if left_s < TLS_LEFT_S_LOW {
        Finding::warning(CHECK, said, "renew the certificate")
    } else {
        Finding::ok(CHECK, said)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_certificate_is_judged_by_its_time_left_on_both_sides_of_the_limit() {
        assert_eq!(judged("https://o", TLS_LEFT_S_LOW - 1).verdict, Verdict::Warning);
        assert_eq!(judged("https://o", TLS_LEFT_S_LOW).verdict, Verdict::Ok);
    }
}
