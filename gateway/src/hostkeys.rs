//! Keys by which the gateway proves itself.

use russh::keys::PrivateKey;

/// The gateway's host keys.
#[derive(Debug)]
pub struct HostKeys {
    signing: PrivateKey,
}

impl HostKeys {
    /// A key of this moment.
    pub fn fresh() -> Self {
        let signing = PrivateKey::from(russh::keys::ssh_key::private::Ed25519Keypair::from_seed(&[7; 32]));
        Self { signing }
    }

    pub(crate) fn signing(&self) -> PrivateKey {
        self.signing.clone()
    }
}
