//! Query parameters and errors, as axum wants them.

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};

use crate::failure::Failure;
use crate::params::Params;

/// The query string as one of the declared sets; anything unknown is refused with a suggestion.
pub(super) struct Query<P>(pub(super) P);

impl<S: Sync, P: Params> FromRequestParts<S> for Query<P> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        P::from_query(parts.uri.query().unwrap_or("")).map(Self)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.body())).into_response()
    }
}
