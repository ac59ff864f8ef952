//! Prints the OpenAPI document: `cargo run -p carrack-api --example openapi > docs/openapi.json`.

fn main() {
    print!("{}", carrack_api::server::openapi_json());
}
