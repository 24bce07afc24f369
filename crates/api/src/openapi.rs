//! Operations of an API, each with its description: one table makes the router and its OpenAPI
//! document, so that neither has what the other lacks.
//!
//! Schemas are those that the types have for `thalweg schema`: OpenAPI 3.1 takes JSON Schema as it
//! is. A second derivation for the document alone (utoipa) could differ from them.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, get, on};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::answer::Json;
use crate::problem::Problem;

/// What a document begins with.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The name of the API.
    pub title: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What it is for.
    pub description: &'static str,
}

/// The operations of an API. Adding two with one method and path panics.
pub struct Operations<S> {
    about: About,
    router: Router<S>,
    paths: Map<String, Value>,
    schemas: SchemaGenerator,
}

/// The description of an operation.
pub struct Operation {
    id: &'static str,
    summary: &'static str,
    parameters: Vec<Parameters>,
    accepts: Option<fn() -> Value>,
    answers: Vec<(u16, &'static str, Vec<Content>)>,
}

/// A function that returns the schema of a type.
type SchemaOf = fn(&mut SchemaGenerator) -> Value;

/// Parameters in the path or the query; the properties of a schema are their names and schemas.
struct Parameters {
    place: &'static str,
    schema: fn() -> Value,
}

/// A media type, with the schema of its documents.
struct Content {
    media_type: &'static str,
    schema: SchemaOf,
}

impl Operation {
    /// An operation with an identifier, which is unique, and a sentence on what it does.
    pub fn new(id: &'static str, summary: &'static str) -> Self {
        Self { id, summary, parameters: Vec::new(), accepts: None, answers: Vec::new() }
    }

    /// It has parameters in the query, which are the fields of `T`.
    #[must_use]
    pub fn query<T: JsonSchema>(mut self) -> Self {
        self.parameters.push(Parameters { place: "query", schema: accepted::<T> });
        self
    }

    /// It has parameters in the path, which are the fields of `T`.
    #[must_use]
    pub fn path<T: JsonSchema>(mut self) -> Self {
        self.parameters.push(Parameters { place: "path", schema: accepted::<T> });
        self
    }

    /// It requires a body `T`.
    #[must_use]
    pub fn accepts<T: JsonSchema>(self) -> Self {
        Self { accepts: Some(accepted::<T>), ..self }
    }

    /// It answers with the status `status` and a document `T`.
    #[must_use]
    pub fn answers<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.answer(status, description, vec![("application/json", reference::<T>)])
    }

    /// It answers with the status 200 and a text of one of these media types.
    #[must_use]
    pub fn answers_text(self, description: &'static str, media_types: &[&'static str]) -> Self {
        let text = |media_type: &&'static str| (*media_type, text as SchemaOf);
        self.answer(200, description, media_types.iter().map(text).collect())
    }

    /// It answers with the status 200 and bytes of this media type.
    #[must_use]
    pub fn answers_bytes(self, description: &'static str, media_type: &'static str) -> Self {
        // OpenAPI 3.1 has no schema for bytes (section 4.8.14.2).
        self.answer(200, description, vec![(media_type, |_| json!({}))])
    }

    /// It may fail with the status `status`.
    #[must_use]
    pub fn fails(self, status: u16, description: &'static str) -> Self {
        self.answer(status, description, vec![PROBLEM])
    }

    fn answer(
        mut self,
        status: u16,
        description: &'static str,
        contents: Vec<(&'static str, SchemaOf)>,
    ) -> Self {
        let content = |(media_type, schema)| Content { media_type, schema };
        self.answers.push((status, description, contents.into_iter().map(content).collect()));
        self
    }

    fn document(&self, schemas: &mut SchemaGenerator) -> Value {
        let mut document = json!({"operationId": self.id, "summary": self.summary});
        let parameters: Vec<_> = self.parameters.iter().flat_map(Parameters::document).collect();
        if !parameters.is_empty() {
            document["parameters"] = parameters.into();
        }
        if let Some(schema) = self.accepts {
            let content = json!({"application/json": {"schema": schema()}});
            document["requestBody"] = json!({"required": true, "content": content});
        }
        for (status, description, contents) in &self.answers {
            let contents = contents.iter().map(|content| {
                (content.media_type.to_owned(), json!({"schema": (content.schema)(schemas)}))
            });
            document["responses"][status.to_string()] =
                json!({"description": description, "content": contents.collect::<Map<_, _>>()});
        }
        let (media_type, problem) = PROBLEM;
        document["responses"]["default"] = json!({
            "description": "The request is wrong, or the server cannot serve it now.",
            "content": {media_type: {"schema": problem(schemas)}},
        });
        document
    }
}

const PROBLEM: (&str, SchemaOf) = ("application/problem+json", reference::<Problem>);

impl Parameters {
    fn document(&self) -> Vec<Value> {
        let schema = (self.schema)();
        let required = |name: &str| {
            let names = schema["required"].as_array();
            names.is_some_and(|names| names.iter().any(|required| required == name))
        };
        let parameter = |(name, schema): (&String, &Value)| {
            let mut schema = schema.clone();
            let description = schema.as_object_mut().and_then(|s| s.remove("description"));
            json!({
                "name": name,
                "in": self.place,
                "required": self.place == "path" || required(name),
                "description": description.unwrap_or_default(),
                "schema": schema,
            })
        };
        let properties = schema["properties"].as_object();
        properties.into_iter().flatten().map(parameter).collect()
    }
}

/// A reference to the schema of a type.
fn reference<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

/// The schema of what a request may hold, in which fields with a default may be absent. It contains
/// those of its parts, since the same type may have another schema in answers.
fn accepted<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let settings = settings.with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

fn text(_: &mut SchemaGenerator) -> Value {
    json!({"type": "string"})
}

impl<S: Clone + Send + Sync + 'static> Operations<S> {
    /// An API without operations.
    pub fn new(about: About) -> Self {
        let mut settings = SchemaSettings::draft2020_12().for_serialize();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        let schemas = settings.into_generator();
        Self { about, router: Router::new(), paths: Map::new(), schemas }
    }

    /// Adds a `GET` of `path`.
    #[must_use]
    pub fn get<H: Handler<T, S>, T: 'static>(
        self,
        path: &str,
        operation: Operation,
        handler: H,
    ) -> Self {
        self.on(MethodFilter::GET, "get", path, operation, handler)
    }

    /// Adds a `POST` to `path`.
    #[must_use]
    pub fn post<H: Handler<T, S>, T: 'static>(
        self,
        path: &str,
        operation: Operation,
        handler: H,
    ) -> Self {
        self.on(MethodFilter::POST, "post", path, operation, handler)
    }

    /// Adds a `PUT` to `path`.
    #[must_use]
    pub fn put<H: Handler<T, S>, T: 'static>(
        self,
        path: &str,
        operation: Operation,
        handler: H,
    ) -> Self {
        self.on(MethodFilter::PUT, "put", path, operation, handler)
    }

    fn on<H: Handler<T, S>, T: 'static>(
        mut self,
        filter: MethodFilter,
        method: &str,
        path: &str,
        operation: Operation,
        handler: H,
    ) -> Self {
        let document = operation.document(&mut self.schemas);
        let item = self.paths.entry(path).or_insert_with(|| json!({}));
        let before = item.as_object_mut().and_then(|item| item.insert(method.into(), document));
        assert!(before.is_none(), "{method} {path} is there twice");
        self.router = self.router.route(path, on(filter, handler));
        self
    }

    /// The router, which serves the document at `path` too, and the document.
    pub fn finish(mut self, path: &str) -> (Router<S>, Value) {
        let operation = Operation::new("openapi", "Returns this document: OpenAPI 3.1.")
            .answers::<Map<String, Value>>(200, "The document.");
        let own = operation.document(&mut self.schemas);
        self.paths.insert(path.into(), json!({"get": own}));
        let About { title, version, description } = self.about;
        let document = json!({
            "openapi": "3.1.0",
            "info": {"title": title, "version": version, "description": description},
            "paths": self.paths,
            "components": {"schemas": self.schemas.take_definitions(true)},
        });
        let served = document.clone();
        let router = self.router.route(path, get(async move || Json(served)));
        (router, document)
    }
}
