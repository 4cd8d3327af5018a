//! The node of a plan that stands for a scan of Parquet files by the workers.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{conjunction_opt, split_conjunction};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapterFactory,
};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use weft_remote::{Place, STORE_URL};

use crate::parquet_files::{ElsewhereFiles, Footers, parquet_source};
use crate::pipelines::file_scan;
use crate::plan_node::{Expr, Plan, plan_node};

/// A file of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScanFile {
    pub(crate) place: Place,
    /// Its name, size and time as they were when the statement was planned.
    pub(crate) object: ObjectMeta,
}

/// Which parts of a file's metadata say what need not be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pruning {
    pub(crate) by_statistics: bool,
    pub(crate) by_pages: bool,
    pub(crate) by_bloom_filters: bool,
    /// Values of a list that are compared with statistics, at most.
    pub(crate) list_max: usize,
}

/// What is scanned.
#[derive(Clone, Debug)]
pub(crate) struct ScanOf {
    pub(crate) files: Vec<ScanFile>,
    /// The columns of the table that the files are.
    pub(crate) table: SchemaRef,
    /// The numbers of those that the scan gives.
    pub(crate) projection: Vec<usize>,
    /// A condition on columns of the table that holds of all rows that anything is done with.
    pub(crate) predicate: Option<Expr>,
    pub(crate) adapters: Arc<dyn PhysicalExprAdapterFactory>,
    pub(crate) footers: Footers,
    pub(crate) pruning: Pruning,
    /// Rows that are decoded at a time, if the plan says so.
    pub(crate) batch_rows: Option<usize>,
}

/// Stands for DataFusion's scan of the files.
#[derive(Debug)]
pub(crate) struct ParquetScanExec {
    leaf: Plan,
    scan: Arc<ScanOf>,
    /// The scan would be one stream if DataFusion read it, in the order of its rows.
    is_one: bool,
    label: String,
}

impl ParquetScanExec {
    /// The node for a leaf; `None` if only DataFusion can read it. `is_one` if that would give a single stream.
    pub(crate) fn of(leaf: &Plan, label: String, is_one: bool) -> Option<ParquetScanExec> {
        let scan = Arc::new(scan_of(leaf)?);
        Some(ParquetScanExec { leaf: Arc::clone(leaf), scan, is_one, label })
    }

    /// What is scanned.
    pub(crate) fn scan(&self) -> &Arc<ScanOf> {
        &self.scan
    }

    /// True if its rows come in the order of the files, if somebody asks for that.
    pub(crate) fn is_one(&self) -> bool {
        self.is_one
    }

    /// What it is, for EXPLAIN.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }
}

impl ScanOf {
    /// True if a file is elsewhere, so that a request takes long.
    pub(crate) fn is_remote(&self) -> bool {
        self.files.iter().any(|file| matches!(file.place, Place::Remote(_)))
    }

    /// True if both scan the same files, and leave out the same rows.
    pub(crate) fn has_same_rows(&self, other: &ScanOf) -> bool {
        let is_same = |(a, b): (&ScanFile, &ScanFile)| a.object == b.object;
        self.files.len() == other.files.len()
            && self.files.iter().zip(&other.files).all(is_same)
            && self.table == other.table
            && self.predicate == other.predicate
    }
}

/// What a leaf scans, if workers can read all of it: whole files, of which columns are wanted as they are.
fn scan_of(leaf: &Plan) -> Option<ScanOf> {
    let (_, config) = file_scan(leaf)?;
    let (source, footers, elsewhere) = parquet_source(config)?;
    let table = config.file_source().table_schema();
    let store = config.object_store_url.as_str();
    let is_plain = table.table_partition_cols().is_empty()
        && table.virtual_columns().is_empty()
        && (store.starts_with("file://") || store.starts_with(STORE_URL))
        && config.output_ordering.is_empty()
        && config.output_partitioning.is_none();
    if !is_plain {
        return None;
    }
    let table = Arc::clone(table.file_schema());
    let column = |expr: &Expr| {
        expr.downcast_ref::<Column>().map(Column::index).filter(|at| *at < table.fields().len())
    };
    let projection: Vec<usize> = match config.file_source().projection() {
        Some(exprs) => exprs.iter().map(|expr| column(&expr.expr)).collect::<Option<_>>()?,
        None => (0..table.fields().len()).collect(),
    };
    let options = source.table_parquet_options();
    let pruning = Pruning {
        by_statistics: options.global.pruning,
        by_pages: options.global.enable_page_index,
        by_bloom_filters: options.global.bloom_filter_on_read,
        list_max: source.max_in_list_size(),
    };
    let adapters = config.expr_adapter_factory.clone();
    // Which rows are the first ones depends on all of them.
    let predicate = config.file_source().filter().filter(|_| config.limit.is_none());
    Some(ScanOf {
        files: files_of(&config.file_groups, elsewhere)?,
        table,
        projection,
        predicate: predicate.as_ref().and_then(fixed),
        adapters: adapters.unwrap_or_else(|| Arc::new(DefaultPhysicalExprAdapterFactory)),
        footers: footers.clone(),
        pruning,
        batch_rows: config.batch_size,
    })
}

/// The part of a predicate that is the same for all rows and all of the time: filters that DataFusion's operators would fill in are
/// not, nor are values of subqueries, which the plan above looks at.
fn fixed(predicate: &Expr) -> Option<Expr> {
    let is_fixed = |expr: &&Expr| {
        let varies =
            |expr: &Expr| expr.is::<DynamicFilterPhysicalExpr>() || expr.is::<ScalarSubqueryExpr>();
        !is_volatile(expr) && !expr.exists(|expr| Ok(varies(expr))).unwrap_or(true)
    };
    let parts: Vec<Expr> =
        split_conjunction(predicate).into_iter().filter(is_fixed).cloned().collect();
    conjunction_opt(parts)
}

/// The files of all groups, each once; `None` if only a part of one is to be read, or something else is said of it.
fn files_of(groups: &[FileGroup], elsewhere: &ElsewhereFiles) -> Option<Vec<ScanFile>> {
    let store = LocalFileSystem::new();
    let mut files: Vec<ScanFile> = Vec::new();
    // Of files that are divided, the bytes of the parts.
    let mut parts: std::collections::HashMap<String, (u64, u64)> = Default::default();
    for file in groups.iter().flat_map(FileGroup::iter) {
        if !file.partition_values.is_empty() || !file.extensions.is_empty() {
            return None;
        }
        let object = &file.object_meta;
        if let Some(range) = &file.range {
            let name = object.location.to_string();
            let is_known = parts.contains_key(&name);
            let part = parts.entry(name).or_insert((object.size, 0));
            part.1 += u64::try_from(range.end - range.start).ok()?;
            if is_known {
                continue;
            }
        }
        let place = match elsewhere.get(&object.location) {
            Some(file) => Place::Remote(file.clone()),
            None => Place::Local(store.path_to_filesystem(&object.location).ok()?),
        };
        files.push(ScanFile { place, object: object.clone() });
    }
    parts.values().all(|(size, sum)| size == sum).then_some(files)
}

impl DisplayAs for ParquetScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParquetScanExec: {}", self.label)
    }
}

impl ExecutionPlan for ParquetScanExec {
    fn name(&self) -> &str {
        "ParquetScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.leaf.properties()
    }

    fn fetch(&self) -> Option<usize> {
        self.leaf.fetch()
    }

    plan_node!(leaf);

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        internal_err!("a source of pipelines is not executed itself")
    }
}
