set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'
set output 'gain.svg'
set title 'Speed against fp32 at the same rate (measured); below the dashed line it loses'
set xlabel 'rate of each link'
set ylabel 'times as fast as fp32'
set grid
set key outside right top Left reverse samplen 3
set logscale x 10
set xtics ('unshaped' 1000, '100mbit' 100, '14mbit' 14)
set yrange [0:*]
set xrange [9.33333:1500]
plot 1 with lines dashtype 2 linecolor rgb '#444444' notitle, \
  'gain.dat' index 0 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 4 linecolor rgb '#D55E00' title 'fp16', \
  'gain.dat' index 1 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 5 linecolor rgb '#0072B2' title 'ac-sgd'
set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'
set output 'gain.png'
replot
