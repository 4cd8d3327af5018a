-- The two columns are a key.
SELECT count(*), sum(length(l_comment)), max(l_shipinstruct), max(l_shipmode),
       sum(length(l_comment)), sum(length(l_shipinstruct)), max(l_shipmode)
FROM lineitem
