//! The routes for the API's document: written from the table that requests are matched by.

use axum::http::{Method, StatusCode};
use sandbox_protocol::session::Scope;
use utoipa::openapi::path::{HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{
    ComponentsBuilder, Info, OpenApi, OpenApiBuilder, Paths, Ref, Required, Response, ResponsesBuilder,
};

use super::headers::RESUME_HEADER;
use super::route::{BELOW, ROUTES};
use crate::api::document::refusal;
use crate::api::session::TOKEN_HEADER;

const TAG: &str = "inside";
const METHODS_OF_PROGRAMS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

const REFUSALS: [(StatusCode, &str); 8] = [
    (StatusCode::UNAUTHORIZED, "The request shows no token that is good"),
    (StatusCode::FORBIDDEN, "The token has no scope for this"),
    (StatusCode::NOT_FOUND, "The caller has no such sandbox here, or there is no such thing in it"),
    (StatusCode::UNPROCESSABLE_ENTITY, "The sandbox does not run (`sandbox_stopped`), or was made by an older release"),
    (
        StatusCode::TOO_MANY_REQUESTS,
        "Asked too often, or as much is open as may be; `Retry-After` says when to come back",
    ),
    (
        StatusCode::BAD_GATEWAY,
        "The sandbox did not answer (`sandbox_unreachable`), or nothing listens at the port (`port_closed`)",
    ),
    (StatusCode::SERVICE_UNAVAILABLE, "The operator is starting or ending, or the sandbox takes too long to start"),
    (StatusCode::GATEWAY_TIMEOUT, "Nothing came from inside the sandbox (`sandbox_silent`)"),
];

/// The document of the routes.
pub(in crate::api) fn document() -> OpenApi {
    let mut paths = Paths::new();
    for route in ROUTES {
        for method in route.methods {
            let name = format!("inside_{}_{}", words(route.pattern), method.as_str().to_lowercase());
            let item = operation((name, route.what), route.scope, names(route.pattern), true);
            paths.add_path_operation(format!("{BELOW}{{id}}/{}", route.pattern), vec![http(method)], item);
        }
    }
    for (path, name) in [("ports/{port}", "port_root"), ("ports/{port}/{path}", "port")] {
        for method in &METHODS_OF_PROGRAMS {
            let name = format!("inside_{name}_{}", method.as_str().to_lowercase());
            let what = "Asks a program that listens at a port; a WebSocket too";
            let item = operation((name, what), Scope::SandboxesPorts, names(path), false);
            paths.add_path_operation(format!("{BELOW}{{id}}/{path}"), vec![http(method)], item);
        }
    }
    let mut components = ComponentsBuilder::new();
    for (status, response) in REFUSALS.map(refusal) {
        components = components.response(component(&status), response);
    }
    OpenApiBuilder::new().info(Info::default()).paths(paths).components(Some(components.build())).build()
}

/// What a refusal is called that all routes share.
fn component(status: &str) -> String {
    format!("Inside{status}")
}

fn operation((name, what): (String, &str), scope: Scope, inside: Vec<&str>, is_sidecars: bool) -> Operation {
    let told = if is_sidecars {
        format!(
            "{what}. Passed on to the sidecar with its query and body, needs the scope `{scope}`; an answer is the sidecar's own."
        )
    } else {
        format!(
            "{what}. Needs the scope `{scope}`; an answer is the program's own. With the token in `{TOKEN_HEADER}`, `Authorization` is the program's."
        )
    };
    let mut operation = OperationBuilder::new()
        .operation_id(Some(name))
        .tag(TAG)
        .summary(Some(what))
        .description(Some(told))
        .security(SecurityRequirement::new("token", Vec::<String>::new()))
        .parameter(parameter("id", ParameterIn::Path, "Id of the sandbox"))
        .parameter(parameter(
            RESUME_HEADER,
            ParameterIn::Header,
            "`true` starts a stopped sandbox first; needs `sandboxes:write`",
        ));
    for name in inside {
        operation = operation.parameter(parameter(name, ParameterIn::Path, "As it is inside"));
    }
    let mut responses = ResponsesBuilder::new().response("default", Response::new("What is served inside answers"));
    for (status, _) in REFUSALS {
        let shared = Ref::new(format!("#/components/responses/{}", component(status.as_str())));
        responses = responses.response(status.as_str(), shared);
    }
    operation.responses(responses.build()).build()
}

fn parameter(name: &str, place: ParameterIn, description: &str) -> Parameter {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new().name(name).parameter_in(place).required(required).description(Some(description)).build()
}

/// The parts of a path that stand for something.
fn names(pattern: &str) -> Vec<&str> {
    pattern.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

fn words(pattern: &str) -> String {
    pattern.replace('/', "_").replace(['{', '}'], "")
}

fn http(method: &Method) -> HttpMethod {
    match method.as_str() {
        "POST" => HttpMethod::Post,
        "PUT" => HttpMethod::Put,
        "DELETE" => HttpMethod::Delete,
        "PATCH" => HttpMethod::Patch,
        "HEAD" => HttpMethod::Head,
        _ => HttpMethod::Get,
    }
}
