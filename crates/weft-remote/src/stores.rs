//! Connections to stores: made of secrets, the environment and profiles, and kept as long as these do not change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector, ReqwestConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::error::{Failure, RemoteError, Result};
use crate::profile::Profile;
use crate::requests::RequestOptions;
use crate::secrets::Secret;
use crate::url::{RemoteUrl, Scheme};
use crate::web::connect_timeout;

/// The region of requests, where nothing says one.
const REGION_DEFAULT: &str = "us-east-1";

/// What a connection is for: the store, its bucket and account, and the number of the secret.
type Key = (Scheme, String, Option<String>, Option<u64>);

/// Connections by what they are for.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    options: Option<RequestOptions>,
    stores: HashMap<Key, Arc<dyn ObjectStore>>,
    client: Option<HttpClient>,
}

impl Stores {
    /// The store of a URL.
    ///
    /// # Errors
    /// [`Failure::Option`] if what is configured does not go together.
    pub(crate) fn of(
        &self,
        url: &RemoteUrl,
        secret: Option<&Secret>,
        options: RequestOptions,
    ) -> Result<Arc<dyn ObjectStore>> {
        let number = secret.map(Secret::number);
        let key = (url.scheme, url.bucket.clone(), url.account.clone(), number);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.begin(options);
        if let Some(store) = kept.stores.get(&key) {
            return Ok(Arc::clone(store));
        }
        let made: Result<Arc<dyn ObjectStore>> = match url.scheme {
            Scheme::S3 => s3(url, secret, options),
            Scheme::Gcs => gcs(url, secret, options),
            Scheme::Azure => azure(url, secret, options),
            Scheme::Web => {
                Err(RemoteError::new(url.name(), Failure::Option, "web servers have no buckets"))
            }
        };
        let store = made?;
        kept.stores.insert(key, Arc::clone(&store));
        Ok(store)
    }

    /// What talks to web servers.
    ///
    /// # Errors
    /// [`Failure::System`] if the system's certificates cannot be used.
    pub(crate) fn client(&self, url: &RemoteUrl, options: RequestOptions) -> Result<HttpClient> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.begin(options);
        if let Some(client) = &kept.client {
            return Ok(client.clone());
        }
        let client = ReqwestConnector::default().connect(
            // An answer is awaited with a time of its own.
            &ClientOptions::new()
                .with_allow_http(true)
                .with_timeout_disabled()
                .with_connect_timeout(connect_timeout(options.timeout)),
        );
        let client = client
            .map_err(|error| RemoteError::new(url.name(), Failure::System, error.to_string()))?;
        kept.client = Some(client.clone());
        Ok(client)
    }
}

impl Kept {
    /// Forgets connections that were made with other options.
    fn begin(&mut self, options: RequestOptions) {
        if self.options != Some(options) {
            *self = Kept { options: Some(options), ..Kept::default() };
        }
    }
}

fn client_options(options: RequestOptions) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(true)
        .with_timeout(options.timeout)
        .with_connect_timeout(connect_timeout(options.timeout))
}

fn retry_config(options: RequestOptions) -> RetryConfig {
    let pause = RequestOptions::pause;
    let attempts = u32::try_from(options.retries).unwrap_or(u32::MAX).saturating_add(1);
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: pause(0),
            max_backoff: pause(usize::MAX),
            base: 2.0,
        },
        max_retries: options.retries,
        retry_timeout: options.timeout.saturating_mul(attempts),
    }
}

/// The error of a store that cannot be made of what is configured.
fn bad(url: &RemoteUrl, error: &object_store::Error) -> RemoteError {
    RemoteError::of_store(url.name(), error, 0.0)
}

/// An endpoint with a scheme.
fn endpoint(text: &str, uses_tls: bool) -> String {
    let text = text.trim_end_matches('/');
    match (text.contains("://"), uses_tls) {
        (true, _) => text.to_owned(),
        (false, true) => format!("https://{text}"),
        (false, false) => format!("http://{text}"),
    }
}

fn s3(
    url: &RemoteUrl,
    secret: Option<&Secret>,
    options: RequestOptions,
) -> Result<Arc<dyn ObjectStore>> {
    let get = |name: &str| secret.and_then(|secret| secret.get(name));
    let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let uses_chain = get("provider") == Some("credential_chain");
    // A secret with a key is all there is to know; others take what they do not say from the environment and profiles.
    let mut builder = match get("key_id") {
        Some(_) => AmazonS3Builder::new(),
        None => AmazonS3Builder::from_env(),
    };
    let mut has_credentials = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"]
        .iter()
        .chain(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"])
        .any(|name| env(name).is_some());
    let mut region = env("AWS_REGION").or_else(|| env("AWS_DEFAULT_REGION"));
    let mut is_own = env("AWS_ENDPOINT_URL").is_some() || env("AWS_ENDPOINT").is_some();
    if get("key_id").is_none() {
        let profile = Profile::read(url.name(), get("profile"))?;
        let is_named = get("profile").is_some();
        if let (Some(id), Some(key)) =
            (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key"))
            && (is_named || !has_credentials)
        {
            builder = builder.with_access_key_id(id).with_secret_access_key(key);
            if let Some(token) = profile.get("aws_session_token") {
                builder = builder.with_token(token);
            }
            has_credentials = true;
        }
        if is_named || region.is_none() {
            region = profile.get("region").map(str::to_owned).or(region);
        }
        if let Some(endpoint) = profile.get("endpoint_url")
            && !is_own
        {
            builder = builder.with_endpoint(endpoint);
            is_own = true;
        }
    }
    if let (Some(id), Some(key)) = (get("key_id"), get("secret")) {
        builder = builder.with_access_key_id(id).with_secret_access_key(key);
        has_credentials = true;
    }
    if let Some(token) = get("session_token") {
        builder = builder.with_token(token);
    }
    let region = get("region").map(str::to_owned).or(region);
    builder = builder.with_region(region.unwrap_or_else(|| REGION_DEFAULT.to_owned()));
    if get("key_id").is_some() {
        // The environment's endpoint is not that of the secret.
        is_own = false;
    }
    if let Some(text) = get("endpoint") {
        let uses_tls = secret.is_none_or(Secret::uses_tls);
        let mut address = endpoint(text, uses_tls);
        is_own = !text.contains("amazonaws.com");
        if get("url_style") == Some("vhost") {
            // Requests go to the endpoint as it is.
            address = address.replacen("://", &format!("://{}.", url.bucket), 1);
        }
        if is_own || text.contains("://") {
            builder = builder.with_endpoint(address);
        }
    }
    match get("url_style") {
        Some(style) => builder = builder.with_virtual_hosted_style_request(style == "vhost"),
        // Amazon's own buckets have hosts; names with dots fit no certificate.
        None if !is_own => {
            builder = builder.with_virtual_hosted_style_request(!url.bucket.contains('.'));
        }
        None => {}
    }
    if !has_credentials && !uses_chain {
        // Public buckets are read by anybody.
        builder = builder.with_skip_signature(true);
    }
    let built = builder
        .with_bucket_name(&url.bucket)
        .with_allow_http(true)
        .with_client_options(client_options(options))
        .with_retry(retry_config(options))
        .build();
    Ok(Arc::new(built.map_err(|error| bad(url, &error))?))
}

fn gcs(
    url: &RemoteUrl,
    secret: Option<&Secret>,
    options: RequestOptions,
) -> Result<Arc<dyn ObjectStore>> {
    let get = |name: &str| secret.and_then(|secret| secret.get(name));
    if let (Some(id), Some(key)) = (get("key_id"), get("secret")) {
        // Keys of the protocol of S3, which this store speaks, too.
        let uses_tls = secret.is_none_or(Secret::uses_tls);
        let built = AmazonS3Builder::new()
            .with_access_key_id(id)
            .with_secret_access_key(key)
            .with_region("auto")
            .with_endpoint(endpoint(get("endpoint").unwrap_or("storage.googleapis.com"), uses_tls))
            .with_bucket_name(&url.bucket)
            .with_client_options(client_options(options))
            .with_retry(retry_config(options))
            .build();
        return Ok(Arc::new(built.map_err(|error| bad(url, &error))?));
    }
    let mut builder = GoogleCloudStorageBuilder::from_env();
    let mut has_credentials = get("provider") == Some("credential_chain")
        || ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_SERVICE_ACCOUNT_KEY"]
            .iter()
            .chain(&["SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS"])
            .any(|name| std::env::var_os(name).is_some());
    if let Some(key) = get("service_account_key") {
        (builder, has_credentials) = (builder.with_service_account_key(key), true);
    }
    if let Some(path) = get("service_account_path") {
        (builder, has_credentials) = (builder.with_service_account_path(path), true);
    }
    if let Some(text) = get("endpoint") {
        builder = builder.with_base_url(&endpoint(text, secret.is_none_or(Secret::uses_tls)));
    }
    if !has_credentials {
        builder = builder.with_skip_signature(true);
    }
    let built = builder
        .with_bucket_name(&url.bucket)
        .with_client_options(client_options(options))
        .with_retry(retry_config(options))
        .build();
    Ok(Arc::new(built.map_err(|error| bad(url, &error))?))
}

fn azure(
    url: &RemoteUrl,
    secret: Option<&Secret>,
    options: RequestOptions,
) -> Result<Arc<dyn ObjectStore>> {
    let connection = secret.and_then(|secret| secret.get("connection_string"));
    let connection = connection.map(str::to_owned);
    let connection = connection.or_else(|| std::env::var("AZURE_STORAGE_CONNECTION_STRING").ok());
    let parts = connection_parts(connection.as_deref().unwrap_or_default());
    let get = |name: &str, part: &str| {
        secret.and_then(|secret| secret.get(name)).or_else(|| parts.get(part).copied())
    };
    let mut builder = MicrosoftAzureBuilder::from_env();
    let account = url.account.as_deref().or_else(|| get("account_name", "AccountName"));
    if let Some(account) = account {
        builder = builder.with_account(account);
    } else if std::env::var_os("AZURE_STORAGE_ACCOUNT_NAME").is_none() {
        let problem = "the storage account is not known";
        return Err(RemoteError::new(url.name(), Failure::Option, problem).with_hint(
            "write az://account.blob.core.windows.net/container/name, or CREATE SECRET (TYPE azure, ACCOUNT_NAME '…')",
        ));
    }
    let mut has_credentials = secret.and_then(|secret| secret.get("provider"))
        == Some("credential_chain")
        || ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"]
            .iter()
            .chain(&["AZURE_STORAGE_TOKEN", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"])
            .chain(&["AZURE_FEDERATED_TOKEN_FILE", "AZURE_STORAGE_ACCESS_KEY"])
            .any(|name| std::env::var_os(name).is_some());
    if let Some(key) = get("account_key", "AccountKey") {
        (builder, has_credentials) = (builder.with_access_key(key), true);
    }
    if let Some(token) = get("sas_token", "SharedAccessSignature") {
        let pairs = url::form_urlencoded::parse(token.trim_start_matches('?').as_bytes());
        let pairs = pairs.map(|(name, value)| (name.into_owned(), value.into_owned()));
        builder = builder.with_sas_authorization(pairs.collect::<Vec<_>>());
        has_credentials = true;
    }
    if let (Some(id), Some(key), Some(tenant)) =
        (get("client_id", ""), get("client_secret", ""), get("tenant_id", ""))
    {
        builder = builder.with_client_secret_authorization(id, key, tenant);
        has_credentials = true;
    }
    if let Some(text) = get("endpoint", "BlobEndpoint") {
        builder = builder.with_endpoint(endpoint(text, secret.is_none_or(Secret::uses_tls)));
    }
    if !has_credentials {
        builder = builder.with_skip_signature(true);
    }
    let built = builder
        .with_container_name(&url.bucket)
        .with_allow_http(true)
        .with_client_options(client_options(options))
        .with_retry(retry_config(options))
        .build();
    Ok(Arc::new(built.map_err(|error| bad(url, &error))?))
}

/// The parts of `AccountName=…;AccountKey=…`.
fn connection_parts(text: &str) -> HashMap<&str, &str> {
    text.split(';').filter_map(|part| part.trim().split_once('=')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_get_schemes() {
        assert_eq!(endpoint("127.0.0.1:5000/", false), "http://127.0.0.1:5000");
        assert_eq!(endpoint("minio", true), "https://minio");
        assert_eq!(endpoint("http://minio", true), "http://minio");
    }

    #[test]
    fn connection_strings_are_taken_apart() {
        let parts = connection_parts("AccountName=a; AccountKey=k==;BlobEndpoint=http://h/a");
        assert_eq!((parts["AccountName"], parts["AccountKey"]), ("a", "k=="));
        assert_eq!(parts["BlobEndpoint"], "http://h/a");
    }
}
