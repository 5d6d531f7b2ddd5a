//! Which fields of which request may be sealed. A job's request says it here, and no other code need know.

use super::Field;
use crate::abi;

/// A request with its sealable fields.
pub trait Sealable {
    /// The fields that may be sealed, each with its name.
    fn sealable(&mut self) -> Vec<(Field, &mut String)>;
}

/// `sealable!(Request: field = Field::Name, …)`
macro_rules! sealable {
    ($($request:ident { $($field:ident: $name:ident),* })*) => {$(
        impl Sealable for abi::$request {
            fn sealable(&mut self) -> Vec<(Field, &mut String)> {
                vec![$((Field::$name, &mut self.$field)),*]
            }
        }
    )*};
}

sealable! {
    SandboxCreateRequest { env_json: EnvJson }
    SandboxIdRequest {}
    ResumeRequest {}
    SandboxSnapshotRequest {}
    ExecRequest { command: Command, env_json: EnvJson, stdin: Stdin }
    PromptRequest { prompt: Prompt, context_json: ContextJson }
    TaskRequest { prompt: Prompt, context_json: ContextJson }
    BatchTaskRequest { prompt: Prompt }
    BatchExecRequest { command: Command, env_json: EnvJson }
    BatchCollectRequest {}
    WorkflowCreateRequest { sandbox_config_json: SandboxConfigJson }
    WorkflowControlRequest {}
    SshProvisionRequest {}
    SshRevokeRequest {}
}

impl Sealable for abi::BatchCreateRequest {
    fn sealable(&mut self) -> Vec<(Field, &mut String)> {
        self.template.sealable()
    }
}
